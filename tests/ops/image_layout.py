"""A process in the layout of an image of docker/Dockerfile, as compose.yaml runs it, made of namespaces and mounts. No engine is needed.

The layout is the Dockerfile's: the program, its configuration, volumes of user 10001; the root is read-only, /tmp is a small tmpfs. Libraries
are this machine's. The user has no capabilities, may gain none, and (as under Docker's filter of system calls) makes no namespaces.
"""

import ctypes
import fcntl
import os
import pathlib
import platform
import socket
import struct
import subprocess

USER = 10001
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MNT_DETACH, PR_SET_NO_NEW_PRIVS = 2, 38
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}.get(platform.machine())
LIBC = ctypes.CDLL(None, use_errno=True)


def checked(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def mount(source, target, kind=None, flags=0, options=None):
    encoded = [None if each is None else str(each).encode() for each in (source, target, kind)]
    checked(LIBC.mount(*encoded, flags, None if options is None else options.encode()), f"mount {target}")


def new_user(number):
    """This user goes on in a namespace of its own, in which it has another number."""
    user, group = os.geteuid(), os.getegid()
    checked(LIBC.unshare(CLONE_NEWUSER), "unshare")
    pathlib.Path("/proc/self/setgroups").write_text("deny")
    pathlib.Path("/proc/self/uid_map").write_text(f"{number} {user} 1")
    pathlib.Path("/proc/self/gid_map").write_text(f"{number} {group} 1")


def enter_machine():
    """Goes on in a child, the first process of a machine of its own: no network but loopback, no other processes."""
    new_user(0)
    checked(LIBC.unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET), "unshare")
    child = os.fork()
    if child != 0:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
    mount(None, "/", flags=MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
    with socket.socket() as any_socket:  # loopback up
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 0x1 | 0x40))


class Image:
    """The image that `docker build` makes for one service, beneath `folder`. `volumes`: path in the container -> folder here."""

    def __init__(self, folder, program, config, volumes, hosts):
        self.root, self.program, self.config, self.volumes, self.hosts = pathlib.Path(folder), program, config, volumes, hosts
        self.root.mkdir(parents=True)

    def bind(self, source, target, read_only=True):
        place = self.root / target.lstrip("/")
        if pathlib.Path(source).is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        mount(source, place, flags=MS_BIND | MS_REC)
        if read_only:
            # In a namespace of users, flags that the outer mount has must stay.
            kept = os.statvfs(place).f_flag & (MS_NOSUID | MS_NODEV | 8 | 1024 | 2048)
            mount(None, place, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | kept)

    def build(self):
        """In a namespace of mounts of its own: the root, read-only but for volumes and /tmp."""
        mount("root", self.root, "tmpfs", MS_NODEV, "mode=0755,size=16m")
        for name in ("lib", "lib64"):
            if pathlib.Path("/" + name).is_symlink():
                (self.root / name).symlink_to("usr/" + name)
        (self.root / "usr/local/bin").mkdir(parents=True)
        for path in ("/usr/lib", "/usr/lib64"):
            if pathlib.Path(path).is_dir():
                self.bind(path, path)
        for path in ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ssl/certs"):
            if pathlib.Path(path).exists():
                self.bind(path, path)
        build = pathlib.Path(self.program).resolve().parent.parent
        self.bind(build, str(build))  # builds for tests keep our code in shared libraries
        self.bind(self.program, "/usr/local/bin/quench-service")
        self.bind(self.config, "/etc/quench/service.txtpb")
        (self.root / "etc/hosts").write_text(self.hosts)
        (self.root / "etc/passwd").write_text(f"quench:x:{USER}:{USER}::/nonexistent:/usr/sbin/nologin\n")
        for device in ("null", "zero", "urandom"):
            self.bind(f"/dev/{device}", f"/dev/{device}", read_only=False)
        self.bind("/sys/devices/system", "/sys/devices/system")
        for path, folder in self.volumes.items():
            self.bind(folder, path, read_only=False)
        for path in ("tmp", "proc"):
            (self.root / path).mkdir()
        mount("tmp", self.root / "tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=1777")
        mount("proc", self.root / "proc", "proc", MS_NOSUID | MS_NODEV)

    def enter(self):
        checked(LIBC.unshare(CLONE_NEWNS), "unshare")
        self.build()
        os.chdir(self.root)
        checked(LIBC.syscall(PIVOT_ROOT, b".", b"."), "pivot_root")
        checked(LIBC.umount2(b".", MNT_DETACH), "umount2")
        os.chdir("/")
        mount(None, "/", flags=MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NODEV)
        new_user(USER)
        pathlib.Path("/proc/sys/user/max_user_namespaces").write_text("0")
        # Another user than root loses its capabilities when it begins a program.
        checked(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")

    def start(self, command, output):
        """The image's ENTRYPOINT or HEALTHCHECK with its environment, which is none of ours."""
        return subprocess.Popen(command, preexec_fn=self.enter, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd="/",
                                env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"})
