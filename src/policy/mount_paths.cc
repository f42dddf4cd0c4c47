#include "policy/mount_paths.h"

#include <algorithm>
#include <array>

#include "base/ascii.h"

namespace carrel::policy {
namespace {

constexpr std::array<std::string_view, 24> kForbidden = {
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/passwd",
    "/etc/passwd-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/pam.d",
    "/etc/security",
    "/etc/krb5.keytab",
    "/etc/kubernetes",
    "/boot",
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/var/run",
    "/var/run/docker.sock",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/kubelet",
};

// What programs keep for their user: keys and tokens, settings that passwords are written into,
// what was typed, and what shells run. Other names are credentials wherever they are.
constexpr auto kForbiddenInHomes = std::to_array<std::string_view>({
    ".ssh",
    ".aws",
    ".gnupg",
    ".config",
    ".kube",
    ".docker",
    ".local/share/keyrings",
    ".local/share/python_keyring",
    ".local/share/fish",
    ".local/share/carrel/run",
    ".local/share/carrel/secrets",
    ".mozilla",
    ".thunderbird",
    ".pki",
    ".Xauthority",
    ".ICEauthority",
    ".vnc",
    ".authinfo",
    ".curlrc",
    ".wgetrc",
    ".boto",
    ".s3cfg",
    ".rclone.conf",
    ".subversion/auth",
    ".fetchmailrc",
    ".msmtprc",
    ".mailrc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".bundle/config",
    ".composer/auth.json",
    ".gem/credentials",
    ".gradle/gradle.properties",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".nuget/NuGet",
    ".pip",
    ".terraform.d",
    ".terraformrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".claude",
    ".claude.json",
    ".codex",
    ".gemini",
    ".ipython",
    ".jupyter",
    ".ash_history",
    ".bash_history",
    ".history",
    ".ksh_history",
    ".lesshst",
    ".mysql_history",
    ".node_repl_history",
    ".psql_history",
    ".python_history",
    ".rediscli_history",
    ".sh_history",
    ".sqlite_history",
    ".viminfo",
    ".zsh_history",
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".pam_environment",
    ".profile",
    ".zlogin",
    ".zprofile",
    ".zshenv",
    ".zshrc",
});

// Whole names.
constexpr std::array<std::string_view, 30> kCredentials = {
    ".ssh",
    ".gnupg",
    ".gpg",
    ".aws",
    ".azure",
    ".gcloud",
    ".kube",
    ".docker",
    ".dockercfg",
    ".env",
    ".envrc",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".git-credentials",
    ".vault-token",
    ".password-store",
    ".secret",
    ".secrets",
    "credentials",
    "credentials.json",
    "credentials.yml",
    "credentials.toml",
    "private_key",
    "private_key.pem",
    "private_key.key",
    "private_key.json",
};

// The beginnings of names that go on with a separator: `.env.local`, `id_rsa.old`.
constexpr std::array<std::string_view, 6> kCredentialStems = {
    ".env", ".secret", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519",
};

// What projects put beside a `.env` to show its shape.
constexpr std::array<std::string_view, 5> kExamples = {
    ".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults",
};

constexpr std::array<std::string_view, 22> kKernelTypes = {
    "proc",     "sysfs",     "devtmpfs",   "devpts",   "cgroup",      "cgroup2",
    "debugfs",  "tracefs",   "securityfs", "configfs", "bpf",         "pstore",
    "efivarfs", "mqueue",    "hugetlbfs",  "fusectl",  "binfmt_misc", "nsfs",
    "autofs",   "selinuxfs", "rpc_pipefs", "nfsd",
};

template <std::size_t Count>
bool contains(const std::array<std::string_view, Count>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Calls `visit` with each component until it returns false.
template <typename Visit>
void for_each_component(std::string_view path, Visit&& visit) {
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(part.size() + 1, path.size()));
    if (!part.empty() && !visit(part)) {
      return;
    }
  }
}

}  // namespace

bool path_holds(std::string_view root, std::string_view path) {
  if (root == "/") {
    return path.starts_with('/');
  }
  return path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
}

std::string folded_path(std::string_view path) {
  std::string folded;
  for_each_component(path, [&](std::string_view part) {
    if (part == "..") {
      folded.resize(folded.empty() ? 0 : folded.rfind('/'));
    } else if (part != ".") {
      folded += '/';
      folded += part;
    }
    return true;
  });
  return folded.empty() ? std::string("/") : folded;
}

std::string path_below(std::string_view folder, std::string_view name) {
  std::string path(folder);
  if (!path.ends_with('/') && !name.starts_with('/')) {
    path += '/';
  } else if (path.ends_with('/') && name.starts_with('/')) {
    path.pop_back();
  }
  path += name;
  return path;
}

bool is_credential_name(std::string_view name) {
  const std::string folded = name.starts_with('.') ? lower(name) : std::string(name);
  if (contains(kCredentials, folded)) {
    return true;
  }
  if (contains(kExamples, folded)) {
    return false;
  }
  return std::any_of(kCredentialStems.begin(), kCredentialStems.end(), [&](std::string_view stem) {
    return folded == stem ||
           (folded.starts_with(stem) &&
            std::string_view("._-").find(folded[stem.size()]) != std::string_view::npos);
  });
}

std::string_view credential_in(std::string_view path) {
  std::string_view found;
  for_each_component(path, [&](std::string_view part) {
    if (is_credential_name(part)) {
      found = part;
    }
    return found.empty();
  });
  return found;
}

bool is_kernel_file_system(std::string_view type) { return contains(kKernelTypes, type); }

std::vector<ForbiddenPath> forbidden_paths(std::span<const std::string> homes) {
  std::vector<ForbiddenPath> paths;
  for (const std::string_view path : kForbidden) {
    paths.push_back({std::string(path), Reach::kBelowAndAbove});
  }
  for (const std::string_view path : {"/home", "/root"}) {
    paths.push_back({std::string(path), Reach::kAbove});
  }
  for (const std::string& home : homes) {
    for (const std::string_view name : kForbiddenInHomes) {
      paths.push_back({path_below(home, name), Reach::kBelowAndAbove});
    }
  }
  return paths;
}

}  // namespace carrel::policy
