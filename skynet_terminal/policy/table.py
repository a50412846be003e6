# ruff: noqa: E501 - a table
"""
The rules that everybody has, by family. Decisions are for strict, standard and trusted, in this order.

``docs/command-policy.md`` lists them; a test compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from skynet_terminal.policy import paths
from skynet_terminal.policy.base import Decision
from skynet_terminal.policy.checks import destructive, environment, exfiltration, files, system, unseen
from skynet_terminal.policy.rules import Check, Rule


def _rule(
    id_: str,
    decisions: str,
    reason: str,
    programs: str = "",
    check: Check | None = None,
    *,
    verbs: str = "",
    letters: str = "",
    names: Sequence[str] = (),
    catastrophic: bool = False,
    in_argv: bool = True,
    general: bool = False,
) -> Rule:
    strict, standard, trusted = cast("list[Decision]", decisions.split())
    return Rule(
        id=id_,
        reason=reason,
        strict=strict,
        standard=standard,
        trusted=trusted,
        programs=frozenset(programs.split()),
        verbs=frozenset(verbs.split()),
        letters=letters,
        names=tuple(names),
        check=check,
        catastrophic=catastrophic,
        in_argv=in_argv,
        general=general,
    )


def _never(id_: str, reason: str, programs: str = "", check: Check | None = None, *, in_argv: bool = True) -> Rule:
    return _rule(id_, "deny deny deny", reason, programs, check, catastrophic=True, in_argv=in_argv)


RULES: tuple[Rule, ...] = (
    # destructive
    _never("destructive.remove-everything", "removes a whole system, home or folder", check=destructive.removes("everything")),
    _never("destructive.no-preserve-root", "takes the guard off that keeps / from being removed", check=destructive.no_preserve_root),
    _rule("destructive.remove-system", "deny deny ask", "removes what is not in your folder", check=destructive.removes("system")),
    _rule("destructive.remove-unknown", "deny ask ask", "removes something whose name is not known before it runs",
          check=destructive.removes("unknown")),
    _rule("destructive.remove-all-here", "deny ask allow", "removes everything in the folder it is run in",
          check=destructive.removes("here")),
    _rule("destructive.git-clean", "deny ask allow", "removes every file that git does not know", "git", destructive.cleans_folder),
    _never("destructive.filesystem", "makes a new file system or wipes a disk",
           "mkfs mke2fs mkfs.ext2 mkfs.ext3 mkfs.ext4 mkfs.xfs mkfs.btrfs mkfs.vfat mkfs.fat mkfs.ntfs mkfs.exfat mkfs.f2fs mkfs.minix "
           "mkfs.msdos mkfs.bfs mkfs.cramfs mkdosfs mkntfs newfs newfs_apfs newfs_hfs wipefs blkdiscard sg_format mkswap"),
    _never("destructive.device", "writes to a raw disk", check=files.writes_device),
    _rule("destructive.partitions", "deny deny ask", "changes disks, partitions or volumes",
          "fdisk sfdisk cfdisk parted gdisk sgdisk hdparm cryptsetup lvremove vgremove pvremove badblocks nvme mdadm tune2fs "
          "debugfs resize2fs partprobe"),
    _rule("destructive.volumes", "deny deny ask", "destroys a volume", "zpool zfs diskutil btrfs", destructive.deletes_volumes),
    _rule("destructive.windows-delete", "deny deny ask", "removes by force and everything beneath", "del erase rd rmdir format",
          destructive.windows_delete),
    _rule("destructive.shred", "deny ask ask", "overwrites files so that nothing brings them back", "shred srm wipe"),
    _never("destructive.fork-bomb", "starts itself until the machine stands still", in_argv=False),
    _never("destructive.rights-of-everything", "changes the rights or owner of the whole system",
           "chmod chown chgrp setfacl chattr", destructive.changes_everything),
    _rule("destructive.rights-of-home", "deny ask ask", "takes away the rights to everything in a folder", "chmod",
          destructive.locks_out),
    _rule("destructive.system-file", "deny deny ask", "writes where the system's files are", check=files.writes_system,
          in_argv=False, general=True,),
    _rule("destructive.unknown-file", "deny ask allow", "writes to a file that is not known before it runs",
          check=files.writes_unknown, in_argv=False),
    _rule("destructive.power", "deny deny ask", "stops the machine",
          "shutdown reboot halt poweroff pm-suspend systemctl-reboot"),
    _rule("destructive.power-state", "deny deny ask", "stops the machine", "init telinit systemctl loginctl", destructive.stops_machine),
    _rule("destructive.kill-all", "deny deny ask", "ends processes that are not one's own", "kill pkill killall killall5",
          destructive.kills_all),
    _rule("destructive.firewall", "deny deny ask", "changes the network of the machine",
          "iptables ip6tables nft ufw firewall-cmd ipset tc", system.mounts),
    _rule("destructive.machine-settings", "deny deny ask", "changes the settings of the machine",
          "ip ifconfig route nmcli hostnamectl timedatectl localectl date hwclock", system.machine_settings),
    # privilege
    _rule("privilege.become", "deny deny ask", "asks for another's rights",
          "sudo su doas pkexec run0 runuser sudoedit sg newgrp gosu su-exec calife super machinectl login setpriv", general=True,),
    _rule("privilege.set-id", "deny deny ask", "lets a program run with its owner's rights", "chmod install", system.sets_id),
    _rule("privilege.capabilities", "deny deny ask", "gives a program rights", "setcap capsh"),
    _rule("privilege.owner", "deny deny ask", "gives files to somebody else", "chown chgrp lchown"),
    _rule("privilege.accounts", "deny deny ask", "changes accounts or passwords",
          "visudo usermod useradd userdel groupadd groupmod groupdel gpasswd passwd chpasswd adduser deluser addgroup vipw vigr chsh "
          "chfn chage dscl newusers"),
    # pipe-to-shell
    _rule("pipe-to-shell.download", "deny deny ask", "runs what comes from the network unseen", check=unseen.runs_download,
          in_argv=False),
    _rule("pipe-to-shell.decoded", "deny deny ask", "runs what was hidden by an encoding", check=unseen.runs_decoded,
          in_argv=False),
    _rule("pipe-to-shell.unseen", "deny ask ask", "runs what another command writes", check=unseen.runs_unseen, in_argv=False),
    _rule("pipe-to-shell.unknown-text", "deny ask ask", "runs a text that is not known before", check=unseen.runs_unknown_text,
          in_argv=False),
    # exfiltration
    _rule("exfiltration.upload", "deny deny ask", "sends files elsewhere", check=exfiltration.uploads, in_argv=False),
    _rule("exfiltration.socket", "deny deny ask", "opens a connection for anything to go through",
          "nc ncat netcat nc.traditional nc.openbsd socat telnet chisel gost ngrok cloudflared localtunnel frpc bore croc wormhole"),
    _rule("exfiltration.in-a-name", "deny deny ask", "tells what it reads to the network, in a name or an address",
          "dig nslookup host drill ping ping6 curl wget getent traceroute whois", exfiltration.tells_by_name, in_argv=False),
    _rule("exfiltration.mail", "deny ask ask", "sends mail", "mail mailx sendmail mutt neomutt swaks msmtp s-nail ssmtp exim telegram-send"),
    _rule("exfiltration.cloud", "deny ask ask", "copies to a service", "aws gsutil gcloud az s3cmd rclone mc b2 doctl gh glab",
          exfiltration.cloud_copy),
    _rule("exfiltration.remote-copy", "deny ask ask", "copies from another machine", "scp rsync rcp", exfiltration.fetches_remote),
    _rule("exfiltration.remote-shell", "deny ask ask", "works on another machine", "ssh autossh mosh rsh rlogin rexec ssh-copy-id sshfs"),
    # reverse-shell
    _rule("reverse-shell.device", "deny deny ask", "connects the shell with the network", check=exfiltration.network_device, in_argv=False),
    _never("reverse-shell.socket", "gives a shell to the network", check=exfiltration.shell_behind_socket),
    _rule("reverse-shell.code", "deny deny ask", "gives a shell to the network"),
    # container-escape
    _rule("container-escape.engine", "deny deny ask", "starts or reaches containers, which are not confined",
          "docker podman nerdctl docker-compose podman-compose kubectl crictl ctr runc crun buildah lxc lxc-start lxc-attach incus "
          "virsh k3s minikube kind vagrant singularity apptainer systemd-nspawn", system.engine_used),
    _rule("container-escape.namespace", "deny deny ask", "leaves the sandbox's view of the system",
          "nsenter chroot unshare pivot_root switch_root bwrap firejail proot setns"),
    _rule("container-escape.mount", "deny deny ask", "changes what is mounted", "mount umount fusermount fusermount3 losetup swapon swapoff",
          system.mounts),
    _rule("container-escape.kernel", "deny deny ask", "changes the kernel", "insmod modprobe rmmod depmod kexec sysctl bpftool dmsetup"),
    _rule("container-escape.path", "deny deny ask", "reaches what leads out of the sandbox", check=files.touches(paths.way_out),
          in_argv=False),
    _rule("container-escape.raw-device", "deny deny ask", "reads a raw disk or memory", check=files.reads_device, in_argv=False),
    _rule("container-escape.trace", "deny ask ask", "looks into other processes", "gdb strace ltrace ptrace gcore perf bpftrace dtrace"),
    # environment
    _rule("environment.dump", "deny deny ask", "shows the whole environment, where secrets are",
          "env genv printenv set export declare typeset readonly compgen ps", environment.dumps_environment),
    _rule("environment.program", "deny deny ask", "shows the whole environment, where secrets are", "jq", environment.dumps_own_environment),
    _rule("environment.code", "deny deny ask", "shows the whole environment, where secrets are"),
    _rule("environment.process", "deny deny ask", "reads a process's environment", check=files.touches(paths.environment_file),
          in_argv=False),
    _rule("environment.takes-over", "deny ask ask", "is a variable that makes other programs run something", check=environment.takes_over,
          in_argv=False),
    # credentials
    _never("credentials.gateway", "belongs to the gateway itself", check=files.touches(paths.gateway_file), in_argv=False),
    _rule("credentials.path", "deny deny ask", "is where credentials are kept", check=files.touches(paths.credential), in_argv=False),
    _rule("credentials.project", "deny ask allow", "may hold a project's secrets", check=files.own_secret_read, in_argv=False),
    _rule("credentials.store", "deny deny ask", "opens a store of secrets",
          "security secret-tool keyctl pass gopass op bw lpass kwallet-query vault"),
    # history
    _rule("history.file", "deny deny ask", "is a record of what was typed", check=files.touches(paths.history_file), in_argv=False),
    _rule("history.show", "deny deny ask", "shows what was typed", "history fc", environment.shows_history),
    # persistence
    _rule("persistence.schedule", "deny deny ask", "runs something later, unseen", "crontab", system.crontab_changes),
    _rule("persistence.later", "deny deny ask", "runs something later, unseen", "at batch anacron systemd-run launchctl"),
    _rule("persistence.start-file", "deny deny ask", "changes what runs at every start", check=files.writes(paths.starts_by_itself),
          in_argv=False),
    _rule("persistence.service", "deny deny ask", "changes services", "systemctl service rc-service update-rc.d chkconfig initctl sv s6-rc",
          system.service_changes),
    _rule("persistence.shell-extension", "deny ask ask", "puts a file's code in the place of commands", "enable",
          system.extends_shell),
    _rule("persistence.hidden-alias", "deny ask ask", "gives a command another meaning that is not known", "alias", environment.redefines),
    # packages
    _rule("packages.system", "deny ask allow", "changes the software of the whole system",
          "apt apt-get aptitude dpkg yum dnf rpm pacman yay zypper apk brew snap flatpak port emerge nix-env xbps-install opkg tdnf "
          "microdnf choco winget", system.system_packages),
    _rule("packages.global", "deny ask allow", "installs for everybody", "npm pnpm yarn bun pip pip3 gem", system.global_packages),
    # what cannot be known
    _rule("unknown.program", "deny ask ask", "is only known when it runs", check=unseen.unknown_program, in_argv=False),
    # what no single command shows
    _rule("text.unreadable", "deny ask ask", "cannot be read as a command line"),
    _rule("text.too-much", "deny deny deny", "is more than is looked at", catastrophic=True),
    _rule("text.control", "deny deny deny", "cannot stand in a command", catastrophic=True),
    _rule("text.escape", "deny ask ask", "makes a terminal show something else than what runs"),
    _rule("text.direction", "deny ask ask", "makes the line look different from what runs"),
    _rule("text.invisible", "deny deny ask", "cannot be seen, and makes a command another than it seems"),
    _rule("text.lookalike", "deny deny ask", "looks like a letter of another alphabet"),
    _rule("text.foreign-program", "deny ask ask", "is no name that programs have"),
    _rule("strict.not-listed", "deny allow allow", "is not among the commands that are known to be harmless", general=True,),
)  # fmt: skip

BY_ID = {rule.id: rule for rule in RULES}
