//! `nix-daemon --stdio`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use floe_format::{Hash, nar::write as nar};
use floe_testkit::{CommandOutput, setpriv_to_nobody};

use super::*;

#[test]
fn real_clients_copy_both_ways() {
    with_hosts(|host| {
        let uri = host.uri("ssh-ng", "nix-daemon");
        let original = host.corpus.store().display().to_string();
        let to = |from: &str, to: &str| {
            run(host.nix_copy(from, to).arg("--no-check-sigs")).expect(0);
        };
        to(&original, &uri);
        host.check_store(&host.root());
        // Everything is present.
        to(&original, &uri);
        let back = host.scratch.join("back");
        to(&uri, back.to_str().unwrap());
        host.check_store(&back);
    });
}

#[test]
fn floe_copies_to_floe() {
    with_hosts(|host| {
        let uri = host.uri("ssh-ng", "nix-daemon");
        let copy = |from: &str, to: &str| {
            let words = ["copy", "--json", "--no-check-sigs", "--from", from];
            run(floe(words).args(["--to", to, &host.corpus.root]))
                .expect(0)
                .json()
        };
        let there = copy(&host.corpus.file_url("zstd"), &uri);
        assert_eq!(there["copied"], host.corpus.paths.len());
        host.nix.verify(&host.root(), host.corpus.paths.len());
        let back = host.scratch.join("back");
        let fetched = copy(&uri, back.to_str().unwrap());
        assert_eq!(fetched["copied"], host.corpus.paths.len());
        assert_eq!(host.rows(&back), host.rows(&host.root()));
    });
}

/// Each command has the same output through floe as on the store itself.
#[test]
fn operations_have_the_results_of_nix() {
    with_hosts(|host| {
        let uri = host.uri("ssh-ng", "nix-daemon");
        let original = host.corpus.store().display().to_string();
        run(host.nix_copy(&original, &uri).arg("--no-check-sigs")).expect(0);
        let local = host.root().display().to_string();
        let nix = |tool: &str, store: &str, words: &[&str]| {
            let mut command = host.nix.command(tool, ["--store", store]);
            command.args(words).env_remove("NIX_REMOTE");
            command.env(
                "NIX_CONFIG",
                "experimental-features = nix-command\nsubstituters =",
            );
            run(&mut command)
        };
        let root = &*host.corpus.root;
        let file = host.scratch.join("a-file");
        fs::write(&file, "contents of a file\n").unwrap();
        let tree = host.scratch.join("a-tree");
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("x"), "x").unwrap();
        let [file, tree] = [&file, &tree].map(|path| path.to_str().unwrap());
        let leaf = &*host.corpus.paths[0];
        for words in [
            &["--add", file][..],
            &["--add", tree],
            &["--add-fixed", "sha256", file],
            &["--add-fixed", "sha1", file],
            &["--add-fixed", "--recursive", "sha256", tree],
            &["-q", "--requisites", root],
            &["-q", "--references", root],
            &["-q", "--referrers", leaf],
            &["-q", "--referrers-closure", leaf],
            &["-q", "--deriver", root],
            &["-q", "--hash", root],
            &["-q", "--size", root],
            &["--check-validity", root],
            &["--gc", "--print-dead"],
            &["--gc", "--print-live"],
        ] {
            let hosted = nix("nix-store", &uri, words).expect(0).stdout;
            let direct = nix("nix-store", &local, words).expect(0).stdout;
            assert_eq!(sorted(&hosted), sorted(&direct), "{words:?}");
        }
        // A derivation has the same path, and its outputs the same names.
        let expression = "derivation { name = \"x\"; system = \"x\"; builder = \"/bin/x\"; \
                          outputs = [ \"out\" \"doc\" ]; }";
        let drv = |store: &str| {
            let made = nix("nix-instantiate", store, &["-E", expression]);
            made.expect(0).stdout.trim().to_owned()
        };
        let made = drv(&uri);
        assert_eq!(made, drv(&local));
        let outputs = |store: &str| {
            nix("nix-store", store, &["-q", "--outputs", &made])
                .expect(0)
                .stdout
        };
        assert_eq!(outputs(&uri), outputs(&local));
        failed(nix("nix-store", &uri, &["--realise", &made]))
            .stderr_contains(&format!("cannot build {made}: this machine has floe"));
        // Present paths are realised, and absent ones are named.
        nix("nix-store", &uri, &["--realise", root]).expect(0);
        let absent = format!("/nix/store/{}-absent", "0".repeat(32));
        failed(nix("nix-store", &uri, &["--realise", &absent])).stderr_contains(&absent);
        nix("nix-store", &uri, &["--optimise"]).expect(0);
        nix("nix-store", &uri, &["--verify", "--check-contents"]).expect(0);
        let key = host.scratch.join("key");
        let made = run(&mut floe(["key", "generate", "hosting-1"]))
            .expect(0)
            .stdout;
        fs::write(&key, made).unwrap();
        nix(
            "nix",
            &uri,
            &["store", "sign", "-k", key.to_str().unwrap(), root],
        )
        .expect(0);
        let info = run(&mut floe(["info", "--root", &local, root]))
            .expect(0)
            .stdout;
        assert!(info.contains("Sig: hosting-1:"), "{info}");
        // A path that a root keeps stays, and the others go.
        let link = host.scratch.join("root");
        std::os::unix::fs::symlink(leaf, &link).unwrap();
        let delete = failed(nix("nix-store", &uri, &["--delete", leaf]));
        delete.stderr_contains("cannot delete");
        let freed = nix("nix-store", &uri, &["--gc"]).expect(0);
        assert!(
            freed.stdout.contains("store paths deleted"),
            "{}",
            freed.stdout
        );
        assert_eq!(
            nix("nix-store", &uri, &["--gc", "--print-dead"])
                .expect(0)
                .stdout,
            ""
        );
        assert_eq!(
            nix("nix-store", &local, &["--dump-db"]).expect(0).stdout,
            ""
        );
    });
}

fn failed(ran: CommandOutput) -> CommandOutput {
    assert!(ran.code.is_some_and(|code| code != 0), "{}", ran.stderr);
    ran
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// A damaged tree is not what its row says: the host hashes it before it registers it.
#[test]
fn damaged_paths_are_refused_by_name() {
    with_hosts(|host| {
        let source = host.scratch.join("source");
        run(host
            .nix_copy(&host.corpus.file_url("xz"), source.to_str().unwrap())
            .arg("--no-check-sigs"))
        .expect(0);
        let damaged = host.corpus.root.clone();
        let tree = source.join(&damaged[1..]);
        let file = first_file(&tree);
        let len = fs::metadata(&file).unwrap().len() as usize;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&file, vec![b'x'; len]).unwrap();
        for (scheme, program) in [("ssh-ng", "nix-daemon"), ("ssh", "nix-store")] {
            let uri = host.uri(scheme, program);
            let mut copy = host.nix_copy(source.to_str().unwrap(), &uri);
            let ran = failed(run(copy.arg("--no-check-sigs")));
            let name = damaged.rsplit('/').next().unwrap();
            ran.stderr_contains(name);
            let valid = host.nix.store(&host.root(), ["--dump-db"]);
            assert!(!valid.contains(name), "{scheme}");
            assert!(!host.root().join(&damaged[1..]).exists(), "{scheme}");
        }
        // Its references arrived whole.
        host.nix.verify(&host.root(), host.corpus.paths.len() - 1);
    });
}

fn first_file(directory: &Path) -> PathBuf {
    let mut entries: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    entries
        .into_iter()
        .find_map(
            |path| match fs::symlink_metadata(&path).unwrap().file_type() {
                kind if kind.is_file() => Some(path),
                kind if kind.is_dir() => Some(first_file(&path)),
                _ => None,
            },
        )
        .unwrap()
}

/// Each client, by each protocol: signed paths, and unsigned ones of a user who owns the store, and
/// of one who does not.
#[test]
fn only_owners_add_unsigned_paths() {
    if setpriv_to_nobody().is_none() {
        return;
    }
    with_hosts(|host| {
        let unsigned = &*host.unsigned_store();
        let signed = host.corpus.file_url("xz");
        let conf = host.scratch.join("conf");
        fs::create_dir(&conf).unwrap();
        let keys = format!(
            "trusted-public-keys = {}\nsubstituters =\n",
            host.corpus.key
        );
        fs::write(conf.join("nix.conf"), keys).unwrap();
        run(Command::new("chmod")
            .args(["-R", "a+rX"])
            .arg(host.scratch.path()))
        .expect(0);
        for (scheme, name) in [("ssh-ng", "nix-daemon"), ("ssh", "nix-store")] {
            for (from, is_owner, is_accepted) in [
                (unsigned, true, true),
                (&*signed, false, true),
                (unsigned, false, false),
            ] {
                for client in ["nix", "floe"] {
                    let root = host.scratch.join("shared");
                    prepare_store(host, &root);
                    let wrapper = wrapper(host, name, &conf, is_owner);
                    let uri = format!(
                        "{scheme}://localhost?remote-program={}&remote-store={}",
                        wrapper.display(),
                        root.display()
                    );
                    let mut copy = match client {
                        "nix" => host.nix_copy(from, &uri),
                        _ => floe(["copy", "--from", from, "--to", &uri, &host.corpus.root]),
                    };
                    if client == "floe" && from == signed {
                        // floe asks a daemon that does not trust it for nothing else.
                        copy.args(["--trusted-public-keys", &host.corpus.key]);
                    } else {
                        copy.arg("--no-check-sigs");
                    }
                    let ran = run(&mut copy);
                    let case = format!("{client} {scheme} {from} {is_owner}");
                    let rows = host.nix.store(&root, ["--dump-db"]);
                    if is_accepted {
                        assert_eq!(ran.code, Some(0), "{case}: {}", ran.stderr);
                        host.nix.verify(&root, host.corpus.paths.len());
                    } else {
                        assert_ne!(ran.code, Some(0), "{case}");
                        assert!(
                            ran.stderr.contains("signature") || ran.stderr.contains("trusted"),
                            "{case}: {}",
                            ran.stderr
                        );
                        assert_eq!(rows, "", "{case}");
                    }
                    floe_store::tree::remove_tree(&root).unwrap();
                }
            }
        }
    });
}

/// Makes a store that every user may write, and that root owns.
fn prepare_store(host: &Host<'_>, root: &Path) {
    host.nix.store(root, ["--verify"]);
    chmod_all(root);
}

pub(super) fn chmod_all(root: &Path) {
    run(Command::new("chmod").args(["-R", "a+rwX"]).arg(root)).expect(0);
}

/// The program of a host that runs as root, or as a user who does not own the store.
pub(super) fn wrapper(host: &Host<'_>, name: &str, conf: &Path, is_owner: bool) -> PathBuf {
    let wrapper = host.scratch.join(&format!("{name}-{is_owner}"));
    let switch = if is_owner {
        String::new()
    } else {
        let setpriv = setpriv_to_nobody().unwrap();
        let words = std::iter::once(setpriv.get_program()).chain(setpriv.get_args());
        words.map(|word| format!("{} ", word.display())).collect()
    };
    let text = format!(
        "#!/bin/sh\nexport NIX_CONF_DIR={} HOME=/nonexistent\nunset NIX_CONFIG\n\
         exec {switch}{} \"$@\"\n",
        conf.display(),
        host.program(name).display()
    );
    fs::write(&wrapper, text).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    wrapper
}

/// Outputs of derivations that are valid, although others are not.
#[test]
fn nix_build_gets_the_outputs_of_valid_derivations() {
    with_hosts(|host| {
        let uri = host.uri("ssh-ng", "nix-daemon");
        let local = host.root().display().to_string();
        let nix = |tool: &str, store: &str, words: &[&str]| {
            let mut command = host.nix.command(tool, ["--store", store]);
            command.args(words).env_remove("NIX_REMOTE");
            let config = "experimental-features = nix-command\nsubstituters =";
            run(command.env("NIX_CONFIG", config))
        };
        // Nix 2.8 builds all outputs.
        let has_other = !host.nix.is_2_8();
        let others = if has_other { "\"doc\"" } else { "" };
        let expression = format!(
            "derivation {{ name = \"x\"; system = \"x\"; builder = \"/bin/x\"; \
             outputs = [ \"out\" {others} ]; }}"
        );
        let made = nix("nix-instantiate", &uri, &["-E", &expression]).expect(0);
        let derivation = made.stdout.trim();
        let outputs = |name: &str| {
            let words = ["-q", "--binding", name, derivation];
            nix("nix-store", &local, &words)
                .expect(0)
                .stdout
                .trim()
                .to_owned()
        };
        let out = outputs("out");
        fs::write(host.root().join(&out[1..]), "built").unwrap();
        let mut contents = Vec::new();
        nar::begin(&mut contents);
        nar::begin_file(&mut contents, false, 5);
        contents.extend_from_slice(b"built");
        nar::end_file(&mut contents, 5);
        let hash = Hash::sha256(floe_hash::sha256(&contents)).digest_base16();
        let row = format!("{out}\n{hash}\n{}\n{derivation}\n0\n", contents.len());
        let file = host.scratch.join("row");
        fs::write(&file, row).unwrap();
        let mut register = host.nix.command("nix-store", ["--store", &local]);
        register.arg("--load-db").env_remove("NIX_REMOTE");
        register.stdin(fs::File::open(&file).unwrap());
        run(&mut register).expect(0);
        let built = |store: &str, output: &str| {
            let output = if has_other { output } else { "" };
            let wanted = format!("{derivation}{output}");
            nix("nix", store, &["build", "--no-link", "--json", &wanted])
        };
        let hosted = built(&uri, "^out").expect(0).json();
        assert_eq!(hosted, built(&local, "^out").expect(0).json());
        assert_eq!(hosted[0]["outputs"]["out"], out);
        if has_other {
            failed(built(&uri, "^doc")).stderr_contains("this machine has floe");
        }
        failed(nix(
            "nix-store",
            &uri,
            &["--realise", "--check", derivation],
        ));
    });
}
