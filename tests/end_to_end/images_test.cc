// Images: imported from everything that tools write, run, listed, removed.
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "support/box.h"
#include "support/fixture.h"
#include "support/walls.h"

namespace carrel::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using std::chrono::seconds;

// Makes, in the directory argv[1], what the tests import: root/ with the files of a small system,
// root.tar, root.tar.gz, oci/ and oci.tar (two layers, gzip), docker.tar (two layers, in the form
// of `docker save`), and hostile archives, each named after what it tries.
const std::string kMaker = R"(
import gzip, hashlib, io, json, os, platform, shutil, sys, tarfile
work, busybox = sys.argv[1:3]
os.chdir(work)
os.umask(0o22)
arch = {'x86_64': 'amd64', 'aarch64': 'arm64'}[platform.machine()]
for d in ('bin', 'etc', 'app', 'usr/share'):
    os.makedirs('root/' + d)
shutil.copy(busybox, 'root/bin/busybox')
for name in ('sh', 'cat', 'echo', 'env', 'ls', 'pwd', 'id', 'sleep', 'stat', 'touch'):
    os.symlink('busybox', 'root/bin/' + name)
open('root/etc/marker', 'w').write('low\n')
open('root/etc/deleted', 'w').write('low\n')

def tar(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=tarfile.PAX_FORMAT) as t:
        for m in members:
            if isinstance(m, str):
                t.add(m, '.')
            else:
                info, data = m
                info.size = len(data)
                t.addfile(info, io.BytesIO(data))
    return out.getvalue()

def member(name, data=b'', **fields):
    info = tarfile.TarInfo(name)
    info.mode = 0o644
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data

def write(path, data):
    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
    open(path, 'wb').write(data)

low = tar('root')
high = tar(member('etc/marker', b'high\n'), member('etc/.wh.deleted'),
           member('app/main', b'#!/bin/sh\necho main "$@" in $(pwd)\n', mode=0o755))
write('root.tar', low)
write('root.tar.gz', gzip.compress(low))

for form in ('PAX', 'GNU', 'USTAR'):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=getattr(tarfile, form + '_FORMAT')) as t:
        t.add('root', '.')
        for name in (b'caf\xe9', b'e\xcc\x81', b'\xc3\xa9', b'\xff\x80'):
            t.addfile(*member(os.fsdecode(b'names/' + name)))
    write('names-' + form + '.tar', out.getvalue())

def sha(data):
    return hashlib.sha256(data).hexdigest()

def config(layers, user='root'):
    return json.dumps({'architecture': arch, 'os': 'linux', 'config': {
        'Env': ['PATH=/app:/bin', 'GREETING=hello', 'HOME=/root'], 'WorkingDir': '/app',
        'User': user, 'Entrypoint': ['/app/main'], 'Cmd': ['by-default']},
        'rootfs': {'type': 'layers', 'diff_ids': ['sha256:' + sha(l) for l in layers]}}).encode()

def blob(data):
    write('oci/blobs/sha256/' + sha(data), data)
    return {'digest': 'sha256:' + sha(data), 'size': len(data)}

manifest = {'schemaVersion': 2, 'config': blob(config([low, high])),
            'layers': [blob(gzip.compress(low)), blob(gzip.compress(high))]}
index = blob(json.dumps(manifest).encode())
index['annotations'] = {'org.opencontainers.image.ref.name': 'layered:1'}
write('oci/oci-layout', b'{"imageLayoutVersion": "1.0.0"}')
write('oci/index.json', json.dumps({'schemaVersion': 2, 'manifests': [index]}).encode())
write('oci.tar', tar('oci'))

c = config([low, high])
write('docker.tar', tar(
    member(sha(c) + '.json', c), member('one/layer.tar', low), member('two/layer.tar', high),
    member('manifest.json', json.dumps([{'Config': sha(c) + '.json', 'RepoTags': ['saved:2'],
        'Layers': ['one/layer.tar', 'two/layer.tar']}]).encode())))
write('docker-changed.tar', tar(
    member(sha(c) + '.json', c), member('one/layer.tar', low), member('two/layer.tar', high + b'\0' * 512),
    member('manifest.json', json.dumps([{'Config': sha(c) + '.json', 'RepoTags': ['changed:2'],
        'Layers': ['one/layer.tar', 'two/layer.tar']}]).encode())))

people = tar(member('etc/passwd', b'root:x:0:0::/root:/bin/sh\ntoor:x:0:0::/:/bin/sh\n'
                    b'app:x:4321:4322::/app:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n'),
             member('etc/group', b'staff:x:50:\n'))
for name, user in (('named', 'app'), ('number', '4321'), ('grouped', 'app:staff'), ('stranger', '1001:0'),
                   ('nobody', 'nobody'), ('zero', '0:0'), ('alias', 'toor'), ('missing', 'somebody'),
                   ('hostile', '../../x'), ('empty', '')):
    c = config([low, people], user)
    write('user-' + name + '.tar', tar(
        member(sha(c) + '.json', c), member('one/layer.tar', low), member('two/layer.tar', people),
        member('manifest.json', json.dumps([{'Config': sha(c) + '.json', 'RepoTags': [name + ':1'],
            'Layers': ['one/layer.tar', 'two/layer.tar']}]).encode())))

link = dict(type=tarfile.SYMTYPE)
hard = dict(type=tarfile.LNKTYPE)
write('hostile/dotdot.tar', tar(member('../escaped', b'x')))
write('hostile/inner.tar', tar(member('a/../../escaped', b'x')))
write('hostile/link.tar', tar(member('d', linkname='..', **link), member('d/escaped', b'x')))
write('hostile/absolute-link.tar', tar(member('d', linkname=work, **link), member('d/escaped', b'x')))
write('hostile/hard.tar', tar(member('x', linkname='../../canary', **hard)))
write('hostile/hard-absolute.tar', tar(member('x', linkname=work + '/canary', **hard)))
write('hostile/opaque.tar', tar(member('../.wh..wh..opq')))
write('hostile/whiteout.tar', tar(member('.wh...')))
bomb = member('bomb', b'')
bomb[0].size = 1 << 50
out = io.BytesIO()
out.write(bomb[0].tobuf(tarfile.GNU_FORMAT) + b'\0' * 4096)
write('hostile/huge.tar', out.getvalue())
info = tarfile.TarInfo('sparse')
info.pax_headers = {'GNU.sparse.major': '1', 'GNU.sparse.minor': '0', 'GNU.sparse.name': 'sparse',
                    'GNU.sparse.realsize': str(1 << 50)}
info.size = 512
write('hostile/sparse.tar', info.tobuf(tarfile.PAX_FORMAT) + b'0\n'.ljust(512, b'\0') + b'\0' * 1024)
write('hostile/deep.tar', tar(member('d/' * 1500 + 'x', b'x')))
write('hostile/cut.tar', low[:len(low) // 2])
write('hostile/cut.tar.gz', gzip.compress(low)[:5000])
write('hostile/not.tar', b'hello' * 1000)
write('hostile/empty.tar', b'')
evil = dict(manifest, layers=[{'digest': 'sha256:../../../canary', 'size': 1}])
write('hostile/oci.tar', tar(member('oci-layout', b'{}'), member('index.json', json.dumps(
    {'manifests': [{'digest': 'sha256:../../../../canary'}]}).encode())))
rights = [member('su', b'x', mode=0o6755), member('null', type=tarfile.CHRTYPE, devmajor=1, devminor=3),
          member('disk', type=tarfile.BLKTYPE, devmajor=8), member('pipe', type=tarfile.FIFOTYPE)]
capable = tarfile.TarInfo('ping')
capable.pax_headers = {'SCHILY.xattr.security.capability': 'x'}
rights.append((capable, b''))
write('rights.tar', tar('root', *rights))
write('canary', b'canary')
)";

// More of the same script.
constexpr const char* kMakeHomes = R"(
# What a Dockerfile put into its user's home, and homes that an image should not have.
def with_home(name, user, *members):
    layer = tar(*members)
    c = config([low, layer], user)
    write('home-' + name + '.tar', tar(
        member(sha(c) + '.json', c), member('one/layer.tar', low), member('two/layer.tar', layer),
        member('manifest.json', json.dumps([{'Config': sha(c) + '.json', 'RepoTags': ['home-' + name + ':1'],
            'Layers': ['one/layer.tar', 'two/layer.tar']}]).encode())))

def home_of(place):
    return [member(place + '/.local/lib/module', b'installed\n'), member(place + '/.profile', b'old\n'),
            member(place + '/bin/tool', b'#!/bin/sh\necho tool runs\n', mode=0o755),
            member(place + '/locked', b'read only\n', mode=0o444), member(place + '/gone', b'gone\n')]

def passwd_of(home, user='root', uid=0):
    return member('etc/passwd', ('%s:x:%d:%d::%s:/bin/sh\n' % (user, uid, uid, home)).encode())

to = dict(type=tarfile.SYMTYPE)
with_home('root', '', *home_of('root'))
with_home('app', 'app', passwd_of('/app', 'app', 4321), *home_of('app'))
with_home('people', 'app', passwd_of('/home/app', 'app', 4321), *home_of('home/app'))
with_home('link', '', member('root', linkname='/etc', **to))
with_home('relative', '', member('root', linkname='../../../../../../etc', **to))
with_home('work', '', member('root', linkname=work, **to))
with_home('parent', 'app', passwd_of('/home/app', 'app', 4321), member('home', linkname='/', **to))
with_home('file', '', member('root', b'a file'))
with_home('inside', '', member('root/shadow', linkname='/etc/shadow', **to),
          member('root/canary', linkname=work + '/canary', **to),
          member('root/su', b'x', mode=0o6755), member('root/null', type=tarfile.CHRTYPE, devmajor=1, devminor=3),
          member('root/whiteout', type=tarfile.CHRTYPE, devmajor=0, devminor=0),
          member('root/pipe', type=tarfile.FIFOTYPE), member('root/.wh.marker'))
for number, home in enumerate(('/', '/etc', '/proc', '/proc/self/root', '/workspace', '/..', '/root/../../..',
                               'root', '', '/dev', '/tmp', '/run', work, '/nonexistent', '/a\x01b', '/' + 'x' * 5000)):
    with_home('odd%d' % number, '', passwd_of(home), member('etc/CANARY', b'of the image'))
xattrs = tarfile.TarInfo('root')
xattrs.type = tarfile.DIRTYPE
xattrs.mode = 0o755
xattrs.pax_headers = {'SCHILY.xattr.user.overlay.redirect': '/etc', 'SCHILY.xattr.user.overlay.opaque': 'y',
                      'SCHILY.xattr.trusted.overlay.redirect': '/etc'}
with_home('xattrs', '', (xattrs, b''), member('root/own', b'own\n'))
)";

class Images : public CarrelTest {
 protected:
  void SetUp() override {
    CarrelTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    const std::string maker = file("make.py", kMaker + more());
    Launch launch;
    launch.program = "/usr/bin/python3";
    launch.arguments = {maker, work(), "/bin/busybox"};
    launch.environment = {"PATH=/usr/bin:/bin"};
    launch.directory = work();
    Process process(launch);
    Run made = process.wait(seconds(60));
    ASSERT_EQ(made.status, 0) << made.err << "(busybox-static has to be installed)";
    const std::string plain = read_text(work() + "/root.tar").value_or("");
    std::string small(ZSTD_compressBound(plain.size()), '\0');
    small.resize(ZSTD_compress(small.data(), small.size(), plain.data(), plain.size(), 3));
    write_text(work() + "/root.tar.zst", small);
    for (const auto& entry : fs::recursive_directory_iterator(work())) {
      place().give(entry.path(), GetParam());
    }
  }

  [[nodiscard]] virtual std::string more() const { return {}; }
  [[nodiscard]] std::string work() const { return place().work(GetParam()); }
  [[nodiscard]] std::string images() const { return place().home(GetParam()) + "/images"; }
  [[nodiscard]] std::size_t count(const std::string& folder) const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(images() + "/" + folder), fs::directory_iterator()));
  }
  json list() const {
    Run run = carrel({"image", "ls", "--json"});
    EXPECT_EQ(run.status, 0) << run.err;
    return json::parse(run.out, nullptr, false).value("images", json());
  }
};
CARREL_AS_BOTH(Images);

class ImageHomes : public Images {
 protected:
  [[nodiscard]] std::string more() const override { return kMakeHomes; }
};
CARREL_AS_BOTH(ImageHomes);

TEST_P(Images, EverySourceRuns) {
  for (const char* source : {"root", "root.tar", "root.tar.gz", "root.tar.zst"}) {
    Run imported = carrel({"image", "import", source});
    ASSERT_EQ(imported.status, 0) << source << ": " << imported.err;
    EXPECT_EQ(imported.out, "root\n");
    EXPECT_EQ(imported.err, "");
    Run run = carrel(
        {"run", "--image", "root", "--", "sh", "-c", "cat /etc/marker /etc/deleted; pwd; id -un"});
    EXPECT_EQ(run.status, 0) << source << ": " << run.err;
    EXPECT_EQ(run.out, "low\nlow\n/workspace\nagent\n") << source;
  }
  for (const auto& [source, name] :
       {std::pair("oci", "layered:1"), std::pair("oci.tar", "layered:1"),
        std::pair("docker.tar", "saved:2")}) {
    Run imported = carrel({"image", "import", source});
    ASSERT_EQ(imported.status, 0) << source << ": " << imported.err;
    EXPECT_EQ(imported.out, std::string(name) + "\n");
    Run run =
        carrel({"run", "--image", name, "--", "sh", "-c", "cat /etc/marker; ls /etc/deleted"});
    EXPECT_EQ(run.status, 1) << source;
    EXPECT_EQ(run.out, "high\n") << source << run.err;
  }
  EXPECT_EQ(list().size(), 3U);
}

// The composed and the decomposed form of a letter are two names, and a name need not be UTF-8.
TEST_P(Images, NamesKeepTheirBytes) {
  for (const char* form : {"PAX", "GNU", "USTAR"}) {
    Run imported =
        carrel({"image", "import", std::string("names-") + form + ".tar", "--name", "n"});
    ASSERT_EQ(imported.status, 0) << form << ": " << imported.err;
    Run run = carrel({"run", "--image", "n", "--", "sh", "-c", "cd /names; echo *"});
    EXPECT_EQ(run.out, "caf\xe9 e\xcc\x81 \xc3\xa9 \xff\x80\n") << form << ": " << run.err;
  }
}

TEST_P(Images, StandardInputIsASource) {
  Run imported = carrel({"image", "import", "-", "--name", "host.example/team/tool:v1.2"},
                        {.input = read_text(work() + "/docker.tar").value_or("")});
  ASSERT_EQ(imported.status, 0) << imported.err;
  Run run = carrel({"run", "--image", "host.example/team/tool:v1.2", "--", "cat", "/etc/marker"});
  EXPECT_EQ(run.out, "high\n") << run.err;
}

TEST_P(Images, ConfigurationOfTheImageIsFollowed) {
  ASSERT_EQ(carrel({"image", "import", "docker.tar"}).status, 0);
  const std::string script = "echo $GREETING $HOME; pwd; id -u; command -v main";
  Run run = carrel({"run", "--image", "saved:2", "--", "sh", "-c", script});
  EXPECT_EQ(run.out, "hello /home/agent\n/app\n1000\n/app/main\n") << run.err;
  Run said = carrel({"run", "--image", "saved:2", "--env", "GREETING=bye", "--workdir",
                     "/workspace", "--", "sh", "-c", script});
  EXPECT_EQ(said.out, "bye /home/agent\n/workspace\n1000\n/app/main\n") << said.err;
  Run own = carrel({"run", "--image", "saved:2"});
  EXPECT_EQ(own.out, "main by-default in /app\n") << own.err;
  ASSERT_EQ(carrel({"image", "import", "root.tar"}).status, 0);
  Run none = carrel({"run", "--image", "root"});
  EXPECT_EQ(none.status, 125);
  EXPECT_TRUE(says_one_line(none, "needs a command"));
}

// What a Dockerfile put into the home is there, belongs to the user, and stays as it is in the
// image.
TEST_P(ImageHomes, HomeOfTheImageIsThereAndCanBeWrittenTo) {
  if (walls().backend != "native") {  // it is empty, and that is told
    ASSERT_EQ(carrel({"image", "import", "home-root.tar"}).status, 0);
    const Run made = carrel({"create", "--image", "home-root:1"});
    const std::string id = made.out.substr(0, made.out.find('\n'));
    EXPECT_EQ(carrel({"exec", id, "--", "sh", "-c", "ls -A ~"}).out, "") << made.err;
    const Run told = carrel({"info", "--enforcement", id});
    EXPECT_NE(told.out.find("home of the image"), std::string::npos) << told.out;
    return;
  }
  for (const auto& [name, place] :
       {std::pair("root", "/root"), std::pair("app", "/app"), std::pair("people", "/home/app")}) {
    ASSERT_EQ(carrel({"image", "import", std::string("home-") + name + ".tar"}).status, 0) << name;
    const std::string image = std::string("home-") + name + ":1";
    const std::string script =
        "cd; cat .local/lib/module .profile gone; bin/tool; stat -c %U:%a .local/lib locked; "
        "echo new > .profile; echo more >> .local/lib/module; echo own > .local/lib/own; rm gone; "
        "mkdir -p .cache/x; mv bin moved; moved/tool; (echo x > locked) 2>/dev/null || echo kept; "
        "rm -rf .local/lib; ls -a | tr '\\n' ' '; cat .profile; find . ! -user $(id -un)";
    const std::string expected =
        "installed\nold\ngone\ntool runs\n" +
        std::string(place == std::string("/root") ? "agent" : "app") + ":755\n" +
        std::string(place == std::string("/root") ? "agent" : "app") +
        ":444\ntool runs\nkept\n. .. .cache .local .profile locked moved new\n";
    for (int again = 0; again < 2; ++again) {
      const Run run = carrel({"run", "--image", image, "--", "sh", "-c", script});
      EXPECT_EQ(run.out, expected) << name << ": " << run.err;
    }
    const Run made = carrel({"create", "--image", image});
    ASSERT_EQ(made.status, 0) << made.err;
    const std::string id = made.out.substr(0, made.out.find('\n'));
    EXPECT_EQ(carrel({"exec", id, "--", "sh", "-c", script}).out, expected) << name;
    EXPECT_EQ(carrel({"exec", id, "--", "sh", "-c", "cat ~/.profile"}).out, "new\n") << name;
    if (place != std::string("/home/app")) {
      const Run old = carrel({"run", "--image", image, "--", "sh", "-c",
                              std::string(place) + "/bin/tool; echo $HOME"});
      EXPECT_EQ(old.out.find("tool runs\n/home/"), 0U) << name << old.out << old.err;
    }
  }
}

TEST_P(ImageHomes, WhatIsWrittenToAHomeIsInMemoryAndBounded) {
  ASSERT_EQ(carrel({"image", "import", "home-root.tar"}).status, 0);
  const Run run =
      carrel({"run", "--image", "home-root:1", "--disk", "8m", "--", "sh", "-c",
              "dd if=/dev/zero of=$HOME/big bs=1M count=64; test -s $HOME/big && echo some"});
  EXPECT_NE(run.err.find("No space left"), std::string::npos) << run.err;
  EXPECT_EQ(run.out, "some\n");
}

// An image is a stranger's, and so is what it says is its home.
TEST_P(ImageHomes, HostileHomesLeadNowhere) {
  std::vector<std::string> names = {"link", "relative", "work", "parent", "file"};
  for (int i = 0; i < 16; ++i) {
    names.push_back("odd" + std::to_string(i));
  }
  for (const std::string& name : names) {
    const Run imported = carrel({"image", "import", "home-" + name + ".tar"});
    ASSERT_EQ(imported.status, 0) << name << imported.err;
    const Run run = carrel({"run", "--image", "home-" + name + ":1", "--", "sh", "-c",
                            "ls -A ~; touch ~/own && ls ~; "
                            "grep -c ' /home/[a-z]* ' /proc/self/mountinfo; "
                            "grep -c ^root: /etc/passwd; cd ~ && pwd"});
    EXPECT_EQ(run.out.substr(0, run.out.find("/home")), "own\n1\n1\n") << name << run.err;
    EXPECT_EQ(run.status, 0) << name << run.err;
  }
  if (walls().backend != "native") {
    return;  // what is in the image's home is not shown
  }
  ASSERT_EQ(carrel({"image", "import", "home-inside.tar"}).status, 0);
  const Run inside = carrel(
      {"run", "--image", "home-inside:1", "--", "sh", "-c",
       "cd; cat shadow canary; ls -A | tr '\\n' ' '; find . -perm /6000 -o -type b -o -type c -o "
       "-type p; echo mine > canary; rm shadow && ln -s /etc/passwd shadow && cat shadow | wc -l"});
  EXPECT_EQ(inside.out.substr(0, inside.out.find(' ')), "canary") << inside.out << inside.err;
  EXPECT_EQ(inside.out.find("./"), std::string::npos) << inside.out;
  EXPECT_EQ(read_text(work() + "/canary"), "canary");
  ASSERT_EQ(carrel({"image", "import", "home-xattrs.tar"}).status, 0);
  const Run xattrs = carrel({"run", "--image", "home-xattrs:1", "--", "sh", "-c",
                             "cd; cat own; ls -A | wc -l; rm own; mkdir own; ls -A own | wc -l; "
                             "mknod own/hidden c 0 0 2>/dev/null; ls -A own | wc -l"});
  EXPECT_EQ(xattrs.out, "own\n1\n0\n0\n") << xattrs.err;
}

TEST_P(Images, TheUserOfTheImageIsFollowedAndNeverRoot) {
  const auto run_in = [this](const std::string& name, std::vector<std::string> options = {}) {
    const Run imported = carrel({"image", "import", "user-" + name + ".tar"});
    EXPECT_EQ(imported.status, 0) << imported.err;
    std::vector<std::string> words = {"run", "--image", name + ":1"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(),
                 {"--", "sh", "-c",
                  "echo $(id -u) $(id -g) $(id -un) $HOME; cd /workspace; touch f ~/g; "
                  "stat -c '%u %g' f; touch /etc/x /app/x 2>/dev/null || echo held"});
    return carrel(words);
  };
  for (const auto& [name, who] :
       {std::pair("named", "4321 4322 app /home/app\n4321 4322\n"),
        std::pair("number", "4321 4322 app /home/app\n4321 4322\n"),
        std::pair("grouped", "4321 50 app /home/app\n4321 50\n"),
        std::pair("stranger", "1001 1000 agent /home/agent\n1001 1000\n"),
        std::pair("nobody", "65534 65534 nobody /home/nobody\n65534 65534\n"),
        std::pair("zero", "1000 1000 agent /home/agent\n1000 1000\n"),
        std::pair("alias", "1000 1000 agent /home/agent\n1000 1000\n"),
        std::pair("empty", "1000 1000 agent /home/agent\n1000 1000\n")}) {
    const Run run = run_in(name);
    EXPECT_EQ(run.out, std::string(who) + "held\n") << name << ": " << run.err;
  }
  EXPECT_EQ(run_in("named", {"--user", "me"}).out, "1000 1000 me /home/me\n1000 1000\nheld\n");
  for (const char* name : {"missing", "hostile"}) {
    const Run refused = run_in(name);
    EXPECT_EQ(refused.status, 125) << name;
    EXPECT_TRUE(says_one_line(refused, "--user agent")) << refused.err;
    EXPECT_EQ(run_in(name, {"--user", "agent"}).status, 0);
  }
  const std::string box = carrel({"create", "--image", "named:1"}).out;
  EXPECT_EQ(carrel({"exec", box.substr(0, box.find('\n')), "--", "id", "-u"}).out, "4321\n");
  EXPECT_EQ(carrel({"rm", "--all", "--force"}).status, 0);
}

// R25, R16
TEST_P(Images, MissingImageIsSaidWithWhatToDo) {
  for (const char* command : {"run", "create"}) {
    std::vector<std::string> words = {command, "--image", "nonexistent:latest"};
    if (std::string(command) == "run") {
      words.insert(words.end(), {"--", "true"});
    }
    Run run = carrel(words);
    EXPECT_EQ(run.status, 125);
    EXPECT_TRUE(says_one_line(run, "carrel image import FILE --name nonexistent:latest"));
    EXPECT_NE(run.err.find("Failed to create sandbox: "), std::string::npos);
  }
}

TEST_P(Images, ImageOfARunningSandboxStays) {
  ASSERT_EQ(carrel({"image", "import", "root.tar"}).status, 0);
  {
    Process process(launch(
        {"run", "--image", "root", "--", "sh", "-c", "echo up; read line; cat /etc/marker"}));
    ASSERT_TRUE(process.wait_for_output("up", seconds(10)));
    Run removed = carrel({"image", "rm", "root"});
    EXPECT_EQ(removed.status, 125);
    EXPECT_TRUE(says_one_line(removed, "used by a sandbox"));
    EXPECT_EQ(carrel({"image", "prune"}).status, 0);
    process.write("\n");
    EXPECT_EQ(process.wait(seconds(10)).out, "up\nlow\n");
  }
  Box box(GetParam(), {"--image", "root"});
  EXPECT_EQ(box.info()["settings"]["image"].get<std::string>().substr(0, 12), "root@sha256:");
  EXPECT_EQ(carrel({"image", "rm", "root"}).status, 125);
  // Replaced under its name, the old files stay with the sandbox.
  ASSERT_EQ(carrel({"image", "import", "docker.tar", "--name", "root"}).status, 0);
  EXPECT_EQ(box.exec({"cat", "/etc/marker"}).out, "low\n");
  EXPECT_EQ(carrel({"run", "--image", "root", "--", "cat", "/etc/marker"}).out, "high\n");
  EXPECT_EQ(count("roots"), 2U);
  EXPECT_EQ(box.remove().status, 0);
  EXPECT_EQ(carrel({"image", "prune"}).status, 0);
  EXPECT_EQ(count("roots"), 1U);
  Run removed = carrel({"image", "rm", "root"});
  EXPECT_EQ(removed.status, 0) << removed.err;
  EXPECT_EQ(count("roots"), 0U);
  EXPECT_EQ(count("layers"), 0U);
}

TEST_P(Images, HostileArchivesAreContained) {
  carrel({"image", "ls"});
  std::size_t tried = 0;
  for (const auto& entry : fs::directory_iterator(work() + "/hostile")) {
    Run run = carrel({"image", "import", entry.path(), "--name", "evil"});
    EXPECT_EQ(run.status, 125) << entry.path() << ": " << run.out << run.err;
    EXPECT_TRUE(says_one_line(run, "import ")) << entry.path();
    for (const char* folder : {"new", "layers", "roots", "names"}) {
      EXPECT_EQ(count(folder), 0U) << entry.path() << " left something in " << folder;
    }
    ++tried;
  }
  EXPECT_EQ(tried, 16U);
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(work()).parent_path())) {
    EXPECT_NE(entry.path().filename(), "escaped") << entry.path();
  }
  EXPECT_EQ(fs::hard_link_count(work() + "/canary"), 1U);
  EXPECT_EQ(read_text(work() + "/canary"), "canary");
  Run changed = carrel({"image", "import", "docker-changed.tar"});
  EXPECT_EQ(changed.status, 125);
  EXPECT_TRUE(says_one_line(changed, "layer 2 of 2 does not have the digest"));
}

TEST_P(Images, WhatLendsRightsIsLeftOut) {
  Run imported = carrel({"image", "import", "--json", "rights.tar"});
  ASSERT_EQ(imported.status, 0) << imported.err;
  const json left_out = json::parse(imported.out)["images"][0]["left_out"];
  EXPECT_EQ(left_out["devices"], 3);
  EXPECT_EQ(left_out["set_ids"], 1);
  EXPECT_EQ(left_out["attributes"], 1);
  for (const auto& entry : fs::recursive_directory_iterator(images())) {
    struct stat info{};
    ASSERT_EQ(::lstat(entry.path().c_str(), &info), 0);
    EXPECT_TRUE(S_ISREG(info.st_mode) || S_ISDIR(info.st_mode) || S_ISLNK(info.st_mode)) << entry;
    EXPECT_EQ(S_ISLNK(info.st_mode) ? 0U : info.st_mode & 07000, 0U) << entry;
  }
}

// Killed at any moment, an import leaves the image as it was or as it should be.
TEST_P(Images, KilledImportLeavesTheOldOrTheNew) {
  ASSERT_EQ(carrel({"image", "import", "root.tar", "--name", "it"}).status, 0);
  bool next_is_high = true;
  for (int delay_ms : {0, 1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64}) {
    Process process(
        launch({"image", "import", next_is_high ? "docker.tar" : "root.tar", "--name", "it"}));
    ::usleep(static_cast<useconds_t>(delay_ms) * 1000);
    process.send(SIGKILL);
    process.wait(seconds(10));
    Run run = carrel({"run", "--image", "it", "--", "cat", "/etc/marker"});
    EXPECT_TRUE(run.out == "low\n" || run.out == "high\n") << run.err;
    next_is_high = run.out == "low\n";
    EXPECT_EQ(list().size(), 1U);  // sweeps
    EXPECT_EQ(count("new"), 0U);
    EXPECT_EQ(count("roots"), 1U);
    EXPECT_EQ(count("names"), 1U);
  }
}

TEST_P(Images, FilesOfAnImageCannotBeChangedFromInside) {
  ASSERT_EQ(carrel({"image", "import", "root.tar"}).status, 0);
  Run run = carrel({"run", "--image", "root", "--", "sh", "-c",
                    "echo x > /etc/marker; echo x > /bin/new; touch /etc/marker; echo end"});
  EXPECT_EQ(run.out, "end\n");
  EXPECT_EQ(carrel({"run", "--image", "root", "--", "cat", "/etc/marker"}).out, "low\n");
  Run written =
      carrel({"run", "--image", "root", "--writable-root", "--", "sh", "-c", "cat /etc/marker"});
  EXPECT_EQ(written.out, "low\n") << written.err;
}

TEST_P(Images, WrongWordsAreOneLine) {
  const struct {
    std::vector<std::string> words;
    const char* text;
  } kTable[] = {
      {{"image"}, "needs ACTION"},
      {{"image", "improt"}, "unknown action 'improt'"},
      {{"image", "import"}, "needs one SOURCE"},
      {{"image", "import", "a", "b"}, "needs one SOURCE"},
      {{"image", "import", "missing.tar"}, "missing.tar"},
      {{"image", "import", "root.tar", "--name", "../../x:latest"}, "not the name of an image"},
      {{"image", "import", "root.tar", "--name", "host"}, "not the name of an image"},
      {{"image", "rm"}, "needs the NAME"},
      {{"image", "rm", "missing"}, "image 'missing' is not here"},
      {{"image", "ls", "x"}, "unexpected word 'x'"},
      {{"image", "rm", "x", "--name", "y"}, "--name belongs to image import"},
      {{"run", "--image", "../../x:latest", "--", "true"}, "not the name of an image"},
  };
  for (const auto& row : kTable) {
    Run run = carrel(row.words);
    EXPECT_EQ(run.status, 125) << row.text;
    EXPECT_TRUE(says_one_line(run, row.text));
  }
}

}  // namespace
}  // namespace carrel::test
