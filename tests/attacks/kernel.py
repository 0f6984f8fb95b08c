"""A1: out of the box, into its neighbours, or into the kernel. Kernel files are asked for access, never opened."""

from pathlib import Path

from tests.attacks.attack import Attack, both
from tests.attacks.box import (
    CAPABLE,
    SHARED_NETWORK,
    bare,
    inside,
    instead,
    no_filter,
    shown,
    started_with,
    without,
)

KERNEL_FILES = {
    "core_pattern": "/proc/sys/kernel/core_pattern",
    "hostname": "/proc/sys/kernel/hostname",
    "drop_caches": "/proc/sys/vm/drop_caches",
    "panic": "/proc/sys/kernel/panic",
    "overcommit": "/proc/sys/vm/overcommit_memory",
    "uevent_helper": "/sys/kernel/uevent_helper",
    "release_agent": "/sys/fs/cgroup/release_agent",
    "docker.sock": "/run/docker.sock",
    "containerd.sock": "/run/containerd/containerd.sock",
}
if Path("/proc/sys/kernel/modprobe").exists():  # not in a kernel without modules
    KERNEL_FILES["modprobe"] = "/proc/sys/kernel/modprobe"
DEVICES = {
    "memory": "/dev/mem",
    "kernel log": "/dev/kmsg",
    "disk": "/dev/sda",
    "virtual machines": "/dev/kvm",
}
CALLS = {
    "bpf": "-1, 0, 0",
    "io_uring_setup": "0, 0",
    "keyctl": "1, 0, 0, 0",
    "add_key": "0, 0, 0, 0, 0",
    "userfaultfd": "-1",
    "perf_event_open": "0, 0, -1, -1, 0",
    "ptrace": "-1, 0, 0, 0",
    "process_vm_readv": "1, 0, 0, 0, 0, -1",
    "setns": "-1, 0",
    "mount": "0, 0, 0, 0, 0",
    "name_to_handle_at": "-1, 0, 0, 0, 0",
    "open_by_handle_at": "-1, 0, 0",
    "swapon": "0, 0",
    "quotactl": "-1, 0, 0, 0",
    "syslog": "-1, 0, 0",
    "pivot_root": "0, 0",
    "kcmp": "1, 1, -1, 0, 0",
    "memfd_secret": "-1",
    "vmsplice": "-1, 0, 0, 0",
}
NEW_USER = "called(LIBC.syscall(NUMBERS['unshare'], ctypes.c_long(0x10000000)))\nreturn 'a user namespace'"
NEIGHBOUR = {
    "signal a neighbour": "os.kill(CANARY_PID, 0)\nreturn 'it can be signalled'",
    "trace a neighbour": "called(LIBC.ptrace(16, CANARY_PID, 0, 0))\nos.waitpid(CANARY_PID, 0)\n"
    "called(LIBC.ptrace(17, CANARY_PID, 0, 0))\nreturn 'attached'",
    "the memory of a neighbour": "return open('/proc/CANARY_PID/mem', 'rb').name",
    "the root of a neighbour": "return os.readlink('/proc/CANARY_PID/root')",
    "the folder of a neighbour": "return os.listdir('/proc/CANARY_PID/cwd')",
    "a handle on a neighbour": "return os.pidfd_open(CANARY_PID)",
}

ATTACKS = [
    *(
        Attack("A1", f"write {name}", inside(f"return may({path!r}, 2)"), shown("--bind", "STAND_IN", path))
        for name, path in KERNEL_FILES.items()
    ),
    *(
        Attack(
            "A1",
            f"read the device of {name}",
            inside(f"return may({path!r}, 4)"),
            shown("--bind", "STAND_IN", path, before="/dev"),
        )
        for name, path in DEVICES.items()
    ),
    *(
        Attack(
            "A1", f"reach {name} in the kernel", inside(f"return reached({name!r}, {arguments})"), no_filter
        )
        for name, arguments in CALLS.items()
    ),
    Attack(
        "A1",
        "a socket to the host of a virtual machine",
        inside("return socket.socket(40, socket.SOCK_STREAM).fileno()"),
        no_filter,
    ),
    Attack(
        "A1", "a user namespace of its own", inside(NEW_USER), both(no_filter, without("--disable-userns"))
    ),
    Attack(
        "A1",
        "a user namespace through clone",
        inside(
            "child = called(LIBC.syscall({'x86_64': 56, 'aarch64': 220}[os.uname().machine], "
            "ctypes.c_long(0x10000011), 0, 0, 0, 0))\n"
            "if not child: os._exit(0)\nos.waitpid(child, 0)\nreturn 'a user namespace'"
        ),
        both(no_filter, without("--disable-userns")),
    ),
    Attack(
        "A1",
        "become root",
        inside("os.setuid(0)\nreturn os.getuid()"),
        instead(["--uid", "1000"], ["--uid", "0"]),
    ),
    Attack(
        "A1",
        "another root folder",
        inside("os.chroot('/tmp')\nreturn os.listdir('/')"),
        both(no_filter, CAPABLE),
    ),
    Attack(
        "A1",
        "capabilities",
        inside(
            "status = open('/proc/self/status').read()\nreturn only(int(status.split('CapEff:')[1].split()[0], 16))"
        ),
        CAPABLE,
    ),
    Attack(
        "A1",
        "programs that give rights",
        inside(
            "if called(LIBC.prctl(39, 0, 0, 0, 0)):\n    raise PermissionError('no new privileges')\nreturn 'setuid'"
        ),
        bare,
    ),
    Attack(
        "A1",
        "a session with the terminal of its starter",
        inside(
            "if os.getsid(0):\n    raise PermissionError('a session of its own')\nreturn 'the same session'"
        ),
        without("--new-session"),
    ),
    Attack(
        "A1",
        "type into a terminal",
        inside(
            "import fcntl\n_, end = os.openpty()\n"
            "try:\n    fcntl.ioctl(end, 0x5412, b'x')\nexcept OSError as error:\n"
            "    if error.errno == errno.ENOSYS: raise\nreturn 'the kernel answered'"
        ),
        no_filter,
    ),
    Attack(
        "A1",
        "an inherited folder",
        inside(
            "return only([os.listdir(f'/proc/self/fd/{n}/..') for n in os.listdir('/proc/self/fd') if int(n) > 3])"
        ),
        started_with(
            pass_fds=lambda scene, given: (*given, scene.canaries.handle),
        ),
    ),
    Attack(
        "A1",
        "a handle sent through a socket",
        inside(
            "with socket.socket(socket.AF_UNIX) as found:\n    found.connect('\\0ABSTRACT_NAME')\n"
            "    found.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack('i', 1))])\n"
            "    return 'sent'"
        ),
        SHARED_NETWORK,
    ),
    *(Attack("A1", name, inside(body), bare) for name, body in NEIGHBOUR.items()),
]
