//! Files that `install.sh` leaves or removes: after kills, on disks that do not run programs, and
//! with a changed record.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::Command;

use floe_testkit::run;

use super::{files_below, served};
use crate::tmpfs_mount::mount;

#[test]
fn uninstall_removes_copies_of_killed_runs() {
    let Some(served) = served() else { return };
    let prefix = served.scratch.join("prefix");
    served.install(&prefix).expect(0);
    for name in ["bin/floe", "share/doc/floe/installed"] {
        fs::write(prefix.join(format!("{name}.floe-new-1")), "cut").unwrap();
    }
    let outside = served.scratch.join("outside");
    fs::write(&outside, "").unwrap();
    let record = prefix.join("share/doc/floe/installed");
    let mut record = fs::File::options().append(true).open(record).unwrap();
    for path in ["../outside", "bin/../../outside"] {
        writeln!(record, "file {path}").unwrap();
    }
    drop(record);
    let mut remove = served.script(&["--uninstall", "--prefix"]);
    // A prefix may end with a slash.
    remove.arg(format!("{}/", prefix.display()));
    run(&mut remove).expect(0);
    assert!(!prefix.exists(), "{:?}", files_below(&prefix));
    assert!(outside.exists());
}

#[test]
fn prefix_without_programs_is_refused_before_files_are_replaced() {
    let Some(served) = served() else { return };
    let Some(disk) = mount("noexec") else { return };
    let prefix = disk.mount_point().join("prefix");
    let mut script = served.script(&["--prefix"]);
    disk.run(script.arg(&prefix))
        .expect(1)
        .stderr_contains("nothing was changed; try another --prefix");
    let left = disk.run(Command::new("ls").arg("-A").arg(disk.mount_point()));
    assert_eq!(left.stdout, "");
}

#[test]
fn two_first_runs_at_once_both_install() {
    let Some(served) = served() else { return };
    for round in 0..3 {
        let prefix = served.scratch.join(&format!("prefix-{round}"));
        let both = std::thread::scope(|scope| {
            let runs = [(); 2].map(|()| scope.spawn(|| served.install(&prefix)));
            runs.map(|run| run.join().unwrap())
        });
        both.into_iter().for_each(|ran| {
            ran.expect(0);
        });
        let mut remove = served.script(&["--uninstall", "--prefix"]);
        run(remove.arg(&prefix)).expect(0);
        // The record of the last run may lack directories that the other one has made.
        let is_file = |name: &String| prefix.join(name).is_file();
        let left = if prefix.exists() {
            files_below(&prefix)
        } else {
            BTreeSet::new()
        };
        assert!(!left.iter().any(is_file), "{left:?}");
    }
}
