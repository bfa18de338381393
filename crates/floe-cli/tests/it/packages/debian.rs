//! The packages of Debian, installed in an empty Debian.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::{Scratch, find_tool, run, scratch, skip};
use parking_lot::Mutex;

use super::{full_release, in_copy_of, linked_names, may_mount, release_file, repository};

/// The architecture of this machine, as Debian names it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => panic!("there is no package for {other}"),
    }
}

/// Copies packages of the release into a directory.
fn copy_packages(release: &Path, names: &[&str], into: &Path) {
    for name in names {
        let deb = package(release, name);
        fs::copy(deb, into.join(format!("{name}.deb"))).unwrap();
    }
}

/// Returns the file of a package for this machine.
fn package(release: &Path, name: &str) -> PathBuf {
    let architecture = match name {
        NIX_NAMES => "all",
        _ => architecture(),
    };
    let suffix = format!("_{architecture}.deb");
    release_file(release, &format!("{name}_"), &suffix)
}

/// The package with links under the names of Nix's programs.
const NIX_NAMES: &str = "floe-nix-names";

/// Returns an empty Debian, made once with the mirror of this machine.
fn empty_debian() -> Option<PathBuf> {
    // Several tests need it at the same time.
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock();
    let debootstrap = find_tool("debootstrap", "debootstrap")?;
    let program = std::env::current_exe().unwrap();
    let target = program.ancestors().nth(3).unwrap();
    let directory = target.join("empty-debian");
    if directory.exists() {
        return Some(directory);
    }
    let Some((mirror, suite)) = mirror() else {
        skip("debootstrap", "apt has no mirror of Debian");
        return None;
    };
    let partial = target.join("empty-debian.partial");
    // An interrupted run has left it.
    if partial.exists() {
        fs::remove_dir_all(&partial).unwrap();
    }
    let mut make = Command::new(debootstrap);
    make.args(["--variant=minbase", &suite]);
    run(make.arg(&partial).arg(mirror)).expect(0);
    fs::rename(&partial, &directory).unwrap();
    Some(directory)
}

/// Returns the address and the suite from which apt would install a package of Debian.
fn mirror() -> Option<(String, String)> {
    let policy = run(Command::new("apt-cache").args(["policy", "base-files"])).stdout;
    let line = policy.lines().find(|line| line.contains("://"))?;
    let mut words = line.split_whitespace().skip(1);
    let address = words.next()?.to_owned();
    let suite = words.next()?.split('/').next()?;
    Some((address, suite.trim_end_matches("-updates").to_owned()))
}

/// Prints all files except for those that dpkg and ldconfig keep for themselves.
const LIST_FILES: &str = "find / -xdev -path /files -prune -o -path /var/lib/dpkg -prune -o \
     -path /var/log -prune -o -path /var/cache/ldconfig -prune -o -path /etc/ld.so.cache -prune \
     -o -print | sort";

#[test]
fn package_installs_works_and_leaves_no_file() {
    let Some(release) = full_release() else {
        return;
    };
    if !may_mount() {
        return;
    }
    let Some(debian) = empty_debian() else { return };
    let files = scratch();
    copy_packages(&release, &["floe"], files.path());
    let script = format!(
        "{LIST_FILES} > /files/before
        dpkg --install /files/floe.deb
        floe --version
        floe demo > /files/demo
        test -s /usr/share/man/man1/floe-install.1.gz
        test -s /usr/share/bash-completion/completions/floe
        test -s /lib/systemd/system/floe.service
        test -s /lib/systemd/system/floe.socket
        test -s /lib/systemd/system/floe-metrics.socket
        test -s /usr/lib/sysusers.d/floe.conf
        test -s /usr/share/doc/floe/docs/operating.md
        test -s /usr/share/doc/floe/examples/floe-alerts.yml
        test -s /usr/share/doc/floe/examples/receive.conf
        useradd --create-home user
        su user -c 'floe demo' > /files/demo-of-user
        userdel --remove user
        dpkg --purge floe
        {LIST_FILES} > /files/after"
    );
    let ran = run(&mut in_copy_of(&debian, files.path(), &script)).expect(0);
    assert!(
        ran.stdout
            .contains(&format!("floe {}", env!("CARGO_PKG_VERSION")))
    );
    for demo in ["demo", "demo-of-user"] {
        let printed = fs::read_to_string(files.join(demo)).unwrap();
        assert!(printed.contains("verified the store"), "{printed}");
    }
    assert_nothing_left(files.path());
}

/// Compares the lists of files in `before` and `after`.
#[track_caller]
fn assert_nothing_left(files: &Path) {
    let read = |name: &str| fs::read_to_string(files.join(name)).unwrap();
    let (before, after) = (read("before"), read("after"));
    let left: Vec<&str> = after
        .lines()
        .filter(|line| !before.lines().any(|other| other == *line))
        // Files of useradd.
        .filter(|line| !line.starts_with("/etc/") || !line.ends_with('-'))
        .collect();
    assert!(before.lines().count() > 1000);
    assert_eq!(left, [""; 0]);
}

#[test]
fn names_of_nix_need_floe_and_leave_no_file() {
    let Some(files) = run_with_names(
        "list_files > /files/before
        dpkg --install /files/floe.deb /files/floe-nix-names.deb
        cd /usr/bin
        find * -lname floe > /files/links
        for name in $(cat /files/links); do
            $name --version > /files/version
            grep -q '^floe' /files/version
            test -s /usr/share/man/man1/$name.1.gz
        done
        # The links would lead nowhere.
        refused dpkg --remove floe
        nix-store --version
        dpkg --purge floe-nix-names floe
        list_files > /files/after",
    ) else {
        return;
    };
    let links = fs::read_to_string(files.join("links")).unwrap();
    let links: BTreeSet<String> = links.lines().map(str::to_owned).collect();
    assert_eq!(links, linked_names());
    assert_nothing_left(files.path());
}

#[test]
fn names_of_nix_are_refused_beside_nix() {
    // The official installer, another directory of PATH, and a file that belongs to no package.
    run_with_names(
        "dpkg --install /files/floe.deb
        # Links to floe are not Nix.
        floe link-names /usr/local/bin
        for place in /nix/var/nix/profiles/default/bin /usr/local/sbin /usr/bin; do
            mkdir -p $place
            echo other > $place/nix-env
            refused dpkg --install /files/floe-nix-names.deb 2> /files/message
            grep -q \"$place/nix-env is not floe\" /files/message
            dpkg --status floe-nix-names | grep -q ' not-installed$'
            grep -q other $place/nix-env
            refused test -e /usr/bin/nix-store
            rm $place/nix-env
        done
        dpkg --install /files/floe-nix-names.deb
        # An upgrade that is refused keeps the old version.
        echo other > /nix/var/nix/profiles/default/bin/nix-env
        refused dpkg --install /files/floe-nix-names.deb
        nix-store --version
        dpkg --status floe-nix-names | grep -q '^Status: install ok installed'",
    );
}

#[test]
fn names_of_nix_conflict_with_the_package_of_nix() {
    run_with_names(
        "mkdir -p /tmp/nix-bin/DEBIAN
        printf '%s\n' 'Package: nix-bin' 'Version: 2.8.0' 'Architecture: all' \\
            'Maintainer: a <a@example.org>' 'Description: a package of this name' \\
            > /tmp/nix-bin/DEBIAN/control
        dpkg-deb --build /tmp/nix-bin /tmp/nix-bin.deb
        dpkg --install /tmp/nix-bin.deb /files/floe.deb
        refused dpkg --install /files/floe-nix-names.deb 2> /files/message
        grep -q 'floe-nix-names conflicts with nix-bin' /files/message
        dpkg --purge nix-bin
        dpkg --install /files/floe-nix-names.deb
        refused dpkg --install /tmp/nix-bin.deb",
    );
}

/// Runs a script in an empty Debian, with the packages of floe and of the names, and two functions.
/// `refused` succeeds if a command fails; after `!`, the shell would continue in any case.
fn run_with_names(script: &str) -> Option<Scratch> {
    let release = full_release()?;
    if !may_mount() {
        return None;
    }
    let debian = empty_debian()?;
    let files = scratch();
    copy_packages(&release, &["floe", NIX_NAMES], files.path());
    let script = format!(
        "refused() {{ if \"$@\"; then echo \"not refused: $*\" >&2; exit 9; fi; }}
        list_files() {{ {LIST_FILES}; }}
        {script}"
    );
    run(&mut in_copy_of(&debian, files.path(), &script)).expect(0);
    Some(files)
}

#[test]
fn programs_are_built_with_the_installed_library() {
    let Some(release) = full_release() else {
        return;
    };
    if !may_mount() {
        return;
    }
    let files = scratch();
    copy_packages(&release, &["floe", "libfloe1", "libfloe-dev"], files.path());
    // This machine has compilers; the copy of it gets the packages.
    let script = "dpkg --install /files/floe.deb /files/libfloe1.deb /files/libfloe-dev.deb >&2
        cd /tmp
        examples=/usr/share/doc/libfloe-dev/examples
        cc -Wall -Werror -o install-c $examples/install.c $(pkg-config --cflags --libs floe)
        c++ -std=c++20 -o install-cpp $examples/install.cpp $(pkg-config --cflags --libs floe)
        cc -o install-static $examples/install.c $(pkg-config --cflags floe) \\
            -l:libfloe.a $(pkg-config --static --libs-only-other floe) -lm
        ldd install-c | grep libfloe.so.1 >&2
        if ldd install-static | grep libfloe >&2; then exit 9; fi
        floe demo --keep demo >&2
        KEY=$(floe key public < demo/demo.secret-key)
        P=$(basename demo/source/nix/store/*-demo-tool-1.0)
        for program in install-c install-cpp install-static; do
            ./$program file://$PWD/demo/cache $PWD/root-$program \"$KEY\" $P
            floe verify --root root-$program >&2
        done
        dpkg --purge libfloe-dev libfloe1 floe >&2
        ! ls /usr/include/floe* /usr/lib/*/libfloe* >&2";
    let ran = run(&mut in_copy_of(Path::new("/"), files.path(), script)).expect(0);
    // Each program prints the path that it has installed.
    let printed = ran.stdout.lines();
    let printed = printed.filter(|line| line.ends_with("-demo-tool-1.0"));
    assert_eq!(printed.count(), 3, "{}", ran.stdout);
}

#[test]
fn package_of_another_architecture_is_refused() {
    let Some(release) = full_release() else {
        return;
    };
    if !may_mount() {
        return;
    }
    let Some(debian) = empty_debian() else { return };
    let files = scratch();
    let other = if architecture() == "amd64" {
        "arm64"
    } else {
        "amd64"
    };
    let deb = release_file(&release, "floe_", &format!("_{other}.deb"));
    fs::copy(deb, files.join("floe.deb")).unwrap();
    let script = "dpkg --install /files/floe.deb";
    let ran = run(&mut in_copy_of(&debian, files.path(), script));
    assert_ne!(ran.code, Some(0));
    let message = format!("package architecture ({other}) does not match");
    assert!(ran.stderr.contains(&message), "{}", ran.stderr);
}

#[test]
fn lintian_accepts_the_packages() {
    let Some(release) = full_release() else {
        return;
    };
    let Some(lintian) = find_tool("lintian", "lintian") else {
        return;
    };
    for name in ["floe", NIX_NAMES, "libfloe1", "libfloe-dev"] {
        let deb = package(&release, name);
        let mut check = Command::new(&lintian);
        check.args(["--fail-on", "error,warning", "--allow-root"]);
        let ran = run(check.arg(&deb));
        assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    }
}

#[test]
fn symbols_file_lists_the_exported_functions() {
    let Some(release) = full_release() else {
        return;
    };
    let Some(gensymbols) = find_tool("dpkg-gensymbols", "dpkg-dev") else {
        return;
    };
    let files = scratch();
    let deb = package(&release, "libfloe1");
    let tree = files.join("tree");
    run(Command::new("dpkg-deb")
        .arg("--extract")
        .args([&deb, &tree]))
    .expect(0);
    let mut libraries = Command::new("find");
    libraries
        .arg(&tree)
        .args(["-name", "libfloe.so.*", "-type", "f"]);
    let library = run(&mut libraries).expect(0).stdout;
    fs::create_dir(files.join("debian")).unwrap();
    let control = "Source: floe\n\nPackage: libfloe1\nArchitecture: any\n";
    fs::write(files.join("debian/control"), control).unwrap();
    let symbols = repository().join("packaging/libfloe/symbols");
    let mut check = Command::new(gensymbols);
    // -c4: fail on new and on missing symbols.
    check.args(["-plibfloe1", "-v0.1.0", "-c4", "-Onew"]);
    check.arg(format!("-I{}", symbols.canonicalize().unwrap().display()));
    check.arg(format!("-e{}", library.trim()));
    run(check.current_dir(files.path())).expect(0);
}
