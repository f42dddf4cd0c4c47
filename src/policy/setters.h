#pragma once

#include <string>

#include "base/result.h"
#include "policy/given.h"
#include "policy/spec.h"

// What each row of the table in settings.cc does with its value. A setter leaves the Spec as it was
// when it refuses.
namespace carrel::policy::setters {

Status set_memory(Spec& spec, const Given& given);
Status set_cpus(Spec& spec, const Given& given);
Status set_pids(Spec& spec, const Given& given);
Status set_timeout(Spec& spec, const Given& given);
Status set_disk(Spec& spec, const Given& given);
Status set_tmp(Spec& spec, const Given& given);

Status set_env(Spec& spec, const Given& given);
Status set_workdir(Spec& spec, const Given& given);
Status set_image(Spec& spec, const Given& given);
Status set_user(Spec& spec, const Given& given);
Status set_hostname(Spec& spec, const Given& given);
Status set_writable_root(Spec& spec, const Given& given);
Status set_network(Spec& spec, const Given& given);
Status set_network_enabled(Spec& spec, const Given& given);
Status set_credential(Spec& spec, const Given& given);
Status set_network_out(Spec& spec, const Given& given);
Status set_network_in(Spec& spec, const Given& given);
Status set_network_connections(Spec& spec, const Given& given);
Status set_network_lookups(Spec& spec, const Given& given);

Status set_require(Spec& spec, const Given& given);
Status set_cgroup_parent(Spec& spec, const Given& given);
Status set_backend(Spec& spec, const Given& given);
Status set_runtime(Spec& spec, const Given& given);
Status set_isolation(Spec& spec, const Given& given);
Status set_use_sandbox(Spec& spec, const Given& given);

Status set_allowed_read_paths(Spec& spec, const Given& given);
Status set_allowed_write_paths(Spec& spec, const Given& given);

Status set_mount(Spec& spec, const Given& given);
Status set_workspace(Spec& spec, const Given& given);
Status set_share_workspace(Spec& spec, const Given& given);
Status set_on_idle(Spec& spec, const Given& given);
Status set_idle_timeout(Spec& spec, const Given& given);
Status set_on_failure(Spec& spec, const Given& given);
Status set_service(Spec& spec, const Given& given);
Status refuse_tier(Spec& spec, const Given& given);

std::string get_on_idle(const Spec& spec);
std::string get_on_failure(const Spec& spec);
std::string get_service(const Spec& spec);
std::string get_env(const Spec& spec);
std::string get_mount(const Spec& spec);
std::string get_allowed_read_paths(const Spec& spec);
std::string get_allowed_write_paths(const Spec& spec);
std::string get_require(const Spec& spec);
std::string get_credential(const Spec& spec);
std::string get_network_out(const Spec& spec);
std::string get_network_in(const Spec& spec);

}  // namespace carrel::policy::setters
