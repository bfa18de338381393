//! Installs by a user without write permission for the store.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{assert_brought_the_rest, leftovers, nars_since};
use crate::faulty::{assert_holds_exactly, faulty};
use crate::server::{Fault, Server};
use crate::support::{Corpus, Ran, Scratch, copy_program, corpus, floe, run, scratch, skip, tree};

/// A closure, and a copy of the binary that every user may execute.
struct Stage {
    corpus: Corpus,
    server: Server,
    scratch: Scratch,
    program: PathBuf,
}

fn stage() -> Option<Stage> {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip("setuid", "only root may switch to another user");
        return None;
    }
    let (corpus, scratch) = (corpus("jq")?, scratch());
    let program = scratch.join("floe");
    copy_program(Path::new(env!("CARGO_BIN_EXE_floe")), &program);
    for file in [scratch.path(), &program] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let server = Server::start(&corpus.cache("zstd"));
    Some(Stage {
        corpus,
        server,
        scratch,
        program,
    })
}

impl Stage {
    /// Installs a path as the user with this id.
    fn install(&self, user: u32, root: &Path, path: &str) -> Ran {
        let args = ["install", "--json", "--from", &self.server.url(), "--root"];
        let plain = floe(args);
        let mut command = Command::new(&self.program);
        command.args(plain.get_args()).uid(user).gid(user);
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
            .arg(root)
            .args(["--trusted-public-keys", &self.corpus.key]);
        run(command.arg(path))
    }
}

#[test]
fn what_refers_to_a_path_whose_place_is_taken_is_not_fetched_any_more() {
    let Some(faulty) = faulty("zstd") else { return };
    let server = Server::start(&faulty.cache);
    let name = |path: &str| faulty.path(path).as_str().to_owned();
    let install = |path: &str| {
        let mut command = floe(["install", "--jobs", "1", "--log-format", "json"]);
        command.args(["--from", &server.url(), "--root"]);
        command.arg(&faulty.root).arg("--trusted-public-keys");
        run(command.arg(&faulty.corpus.key).arg(path))
    };
    install(&format!("/nix/store/{}", name("libgcc"))).expect(0);
    // The largest path comes first. The commit rejects it while the only worker waits for the
    // `Retry-After` of the second one. 60 seconds are more than any machine needs for that.
    let lock = faulty
        .root
        .join(format!("nix/store/{}.lock", name("libc6")));
    fs::write(&lock, "notes of a user").unwrap();
    let nar = faulty.nar(&faulty.path("libonig5"));
    let nar = nar.file_name().unwrap().to_str().unwrap();
    let later = Fault::Later(503, "60".into());
    server.fail(nar, later.clone());
    let ran = install(&faulty.corpus.root).expect(1).says("libc6");
    assert_eq!(server.hits_on(nar).len(), 1, "{}", ran.stderr);
    let finished: Vec<&str> = ran
        .stderr
        .lines()
        .filter(|l| l.contains("staged"))
        .collect();
    assert_eq!(finished.len(), 1, "{}", ran.stderr);
    assert!(finished[0].contains("libc6"), "{}", ran.stderr);
    fs::remove_file(&lock).unwrap();
    server.heal();
    install(&faulty.corpus.root).expect(0);
    assert_holds_exactly(&faulty.root, &faulty.without(&[]));
}

/// The user id of `nobody`, which owns no files.
const NOBODY: u32 = 65534;

#[test]
fn a_store_of_somebody_else_is_named_and_left_alone() {
    let Some(stage) = stage() else { return };
    let (corpus, root) = (&stage.corpus, stage.scratch.join("root"));
    let says = |ran: Ran| {
        ran.expect(1)
            .says("Permission denied")
            .says(&root.display().to_string())
            .says("run as the owner of the store, or use a store of your own with --root DIR");
    };
    // Test without a store, and with one.
    says(stage.install(NOBODY, &root, &corpus.root));
    assert!(!root.exists());
    let part = corpus.paths.iter().find(|path| path.contains("-libc6-"));
    stage.install(0, &root, part.unwrap()).expect(0);
    let before = tree(&root);
    let since = stage.server.hits().len();
    says(stage.install(NOBODY, &root, &corpus.root));
    assert_eq!(nars_since(&stage.server, since), [""; 0]);
    assert_eq!(tree(&root), before);

    // The owner can continue, and the other user can use a store of their own.
    let had = fs::read_dir(root.join("nix/store")).unwrap();
    let had = had.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let had = had.filter(|name| name != ".links").collect();
    stage.install(0, &root, &corpus.root).expect(0);
    assert_brought_the_rest(corpus, &stage.server, since, &had);
    assert_holds_exactly(&root, &corpus.paths.iter().cloned().collect());
    let own = stage.scratch.join("own");
    fs::create_dir(&own).unwrap();
    chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
    stage.install(NOBODY, &own, &corpus.root).expect(0);
    assert_holds_exactly(&own, &corpus.paths.iter().cloned().collect());
}

#[test]
fn a_directory_of_paths_that_may_not_be_written_is_named_before_anything_is_fetched() {
    let Some(stage) = stage() else { return };
    let (corpus, root) = (&stage.corpus, stage.scratch.join("root"));
    fs::create_dir(&root).unwrap();
    chown(&root, Some(NOBODY), Some(NOBODY)).unwrap();
    let part = corpus
        .paths
        .iter()
        .find(|path| path.contains("-gcc-12-base-"));
    let part = part.unwrap();
    stage.install(NOBODY, &root, part).expect(0);
    let store = root.join("nix/store");
    chown(&store, Some(0), Some(0)).unwrap();
    let since = stage.server.hits().len();
    stage
        .install(NOBODY, &root, &corpus.root)
        .expect(1)
        .says("Permission denied")
        .says(&store.display().to_string());
    assert_eq!(nars_since(&stage.server, since), [""; 0]);
    assert_eq!(leftovers(&store), [""; 0]);

    chown(&store, Some(NOBODY), Some(NOBODY)).unwrap();
    let since = stage.server.hits().len();
    stage.install(NOBODY, &root, &corpus.root).expect(0);
    let had = [part.rsplit('/').next().unwrap().to_owned()].into();
    assert_brought_the_rest(corpus, &stage.server, since, &had);
    assert_holds_exactly(&root, &corpus.paths.iter().cloned().collect());
}
