//! Servers without write permission for the database directory.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Command;

use floe_testkit::http_client::narinfo_of;
use floe_testkit::{corpus, nixes, run, skip, wait_until};

use super::NixStore;
use crate::serve_options::serve;
use crate::server_process::ServerProcess;

pub(super) fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Starts a server that switches to the user `nobody`.
#[track_caller]
pub(super) fn as_nobody(store: &NixStore<'_>) -> ServerProcess {
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(store.scratch.path(), open).unwrap();
    let args = [
        "nix-serve",
        "--quiet",
        "-l",
        "127.0.0.1:0",
        "--user",
        "nobody",
        "--store",
    ];
    ServerProcess::spawn(serve(&args).arg(store.root()))
}

/// Checkpoints the database and removes its side files, as older Nix versions do.
fn checkpoint(store: &NixStore<'_>) {
    let database = store.root().join("nix/var/nix/db/db.sqlite");
    let connection = rusqlite::Connection::open(&database).unwrap();
    let pragma = "pragma wal_checkpoint(truncate)";
    connection.query_row(pragma, (), |_| Ok(())).unwrap();
    drop(connection);
    for side in ["db.sqlite-wal", "db.sqlite-shm"] {
        let file = database.with_file_name(side);
        assert!(!file.exists() || fs::remove_file(&file).is_ok());
    }
}

#[test]
fn unprivileged_server_sees_changes_without_side_files() {
    if !is_root() {
        skip("another user", "only root may switch to another user");
        return;
    }
    for nix in &nixes() {
        for settings in ["", "use-sqlite-wal = false"] {
            let store = NixStore::new(nix, settings);
            let first = store.add("first", b"the first");
            checkpoint(&store);
            let serve = as_nobody(&store);
            let what = format!("{}, {settings:?}", nix.version);
            for _ in 0..2 {
                let narinfo = serve.get(&narinfo_of(&first));
                assert_eq!(narinfo.status, 200, "{what}: {}", serve.stderr());
                let nar = serve.get(&format!("/{}", narinfo.narinfo_field("URL")));
                assert_eq!(nar.status, 200, "{what}");
            }
            for name in ["second", "third"] {
                let path = store.add(name, name.as_bytes());
                // A reader without write permission polls the files for changes.
                wait_until(&what, || serve.get(&narinfo_of(&path)).status == 200);
                store.run(&["--delete", &path]);
                wait_until(&what, || serve.get(&narinfo_of(&path)).status == 404);
                checkpoint(&store);
            }
            assert_eq!(serve.get(&narinfo_of(&first)).status, 200, "{what}");
            assert_eq!(serve.stop(), "", "{what}");
        }
    }
}

#[test]
fn read_only_mounted_store_is_served_and_sees_changes() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in &nixes() {
        let store = NixStore::new(nix, "");
        store.copy(&corpus);
        checkpoint(&store);
        let root = store.root().display().to_string();
        let script = "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\" && exec \"$@\"";
        let shell = || {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", script, &root]);
            command
        };
        if run(shell().arg("true")).code != Some(0) {
            skip(
                "mount namespaces",
                "not allowed here; run the tests as root",
            );
            return;
        }
        let refused = run(shell().args(["touch", &format!("{root}/nix/var/nix/db/x")]));
        assert_ne!(refused.code, Some(0), "the mount is writable");
        let mut command = shell();
        command.arg(env!("CARGO_BIN_EXE_floe"));
        let serve =
            ServerProcess::spawn(command.args(["serve", "-l", "127.0.0.1:0", "--store", &root]));
        for path in &corpus.paths {
            let narinfo = serve.get(&narinfo_of(path));
            assert_eq!(narinfo.status, 200, "{}: {}", nix.version, serve.stderr());
            let nar = serve.get(&format!("/{}", narinfo.narinfo_field("URL")));
            assert_eq!(nar.body.len().to_string(), narinfo.narinfo_field("NarSize"));
        }
        // Outside the mount namespace, Nix continues to write.
        let path = store.add("more", b"more");
        wait_until("the new path is not served", || {
            serve.get(&narinfo_of(&path)).status == 200
        });
        store.run(&["--gc"]);
        wait_until("the deleted path is still served", || {
            serve.get(&narinfo_of(&path)).status == 404
        });
        assert_eq!(serve.stop(), "", "{}", nix.version);
    }
}
