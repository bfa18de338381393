//! `nix-store --serve`.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use floe_testkit::setpriv_to_nobody;

use super::*;

const CLIENT_MAGIC: u64 = 0x390c_9deb;
const SERVER_MAGIC: u64 = 0x5452_eecb;
const VERSION: u64 = 0x207;

#[test]
fn real_clients_copy_both_ways() {
    with_hosts(|host| {
        let uri = host.uri("ssh", "nix-store");
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
        // A client that commits each path at once has left nothing.
        let temporary = fs::read_dir(host.root().join("nix/store")).unwrap();
        let temporary = temporary.filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().starts_with(".floe")
        });
        assert_eq!(temporary.count(), 0);
    });
}

#[test]
fn floe_copies_to_floe() {
    with_hosts(|host| {
        let uri = host.uri("ssh", "nix-store");
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
        // Two words, as for a machine without links.
        let two = format!(
            "ssh://localhost?remote-program={} nix-store&remote-store={}",
            floe([""; 0]).get_program().display(),
            host.root().display()
        );
        assert_eq!(
            copy(&two, host.scratch.join("two").to_str().unwrap())["copied"],
            there["copied"]
        );
    });
}

/// The host fetches what its substituters have, and the client sends the rest.
#[test]
fn host_substitutes_for_the_client() {
    with_hosts(|host| {
        let conf = host.scratch.join("conf");
        fs::create_dir(&conf).unwrap();
        let settings = format!(
            "substituters = {}\ntrusted-public-keys = {}\n",
            host.corpus.file_url("zstd"),
            host.corpus.key
        );
        fs::write(conf.join("nix.conf"), settings).unwrap();
        let wrapper = host.scratch.join("with-conf");
        let text = format!(
            "#!/bin/sh\nexport NIX_CONF_DIR={}\nunset NIX_CONFIG\nexec {} \"$@\"\n",
            conf.display(),
            host.program("nix-store").display()
        );
        fs::write(&wrapper, text).unwrap();
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
        let uri = format!(
            "ssh://localhost?remote-program={}&remote-store={}",
            wrapper.display(),
            host.root().display()
        );
        let original = host.corpus.store().display().to_string();
        let mut copy = host.nix_copy(&original, &uri);
        copy.args(["--no-check-sigs", "--substitute-on-destination"]);
        let ran = run(&mut copy).expect(0);
        let sent = ran.stderr.matches("copying path").count();
        assert_eq!(sent, 0, "{}", ran.stderr);
        host.nix.verify(&host.root(), host.corpus.paths.len());
    });
}

/// The bytes of a conversation.
struct Conversation {
    sent: Vec<u8>,
}

impl Conversation {
    fn new() -> Conversation {
        let mut conversation = Conversation { sent: Vec::new() };
        conversation.number(CLIENT_MAGIC).number(VERSION);
        conversation
    }

    fn number(&mut self, number: u64) -> &mut Conversation {
        self.sent.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn text(&mut self, text: &str) -> &mut Conversation {
        self.number(text.len() as u64);
        self.sent.extend_from_slice(text.as_bytes());
        self.sent.resize(self.sent.len().next_multiple_of(8), 0);
        self
    }

    fn texts(&mut self, texts: &[&str]) -> &mut Conversation {
        self.number(texts.len() as u64);
        texts.iter().for_each(|text| {
            self.text(text);
        });
        self
    }

    /// Sends everything, and returns the exit code, the bytes after the greeting, and the messages.
    fn run(&self, command: &mut Command) -> (Option<i32>, Vec<u8>, String) {
        hide_nix_conf(command);
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut input, sent) = (child.stdin.take().unwrap(), self.sent.clone());
        // The server may end before it has read everything.
        let writer = std::thread::spawn(move || drop(input.write_all(&sent)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        let greeting: Vec<u8> = [SERVER_MAGIC, VERSION]
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        assert!(output.stdout.starts_with(&greeting), "{output:?}");
        let replies = output.stdout[greeting.len()..].to_vec();
        let messages = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), replies, messages)
    }
}

fn serve(host: &Host<'_>, words: &[&str]) -> Command {
    let mut command = Command::new(host.program("nix-store"));
    command
        .args(["--serve", "--store"])
        .arg(host.root())
        .args(words);
    command
}

#[test]
fn exports_and_imports_are_those_of_nix() {
    with_hosts(|host| {
        let original = host.corpus.store();
        let paths: Vec<&str> = host.corpus.paths.iter().map(String::as_str).collect();
        let exported = host
            .nix
            .command("nix-store", ["--store"])
            .arg(&original)
            .arg("--export")
            .args(&paths)
            .output()
            .unwrap();
        assert!(exported.status.success(), "{exported:?}");
        let mut import = Conversation::new();
        import.number(4).sent.extend_from_slice(&exported.stdout);
        let (code, replies, messages) = import.run(&mut serve(host, &["--write"]));
        assert_eq!(
            (code, &*replies),
            (Some(0), &1_u64.to_le_bytes()[..]),
            "{messages}"
        );
        host.nix.verify(&host.root(), paths.len());

        let mut export = Conversation::new();
        export.number(5).number(0).texts(&paths);
        let (code, replies, messages) = export.run(&mut serve(host, &[]));
        assert_eq!(code, Some(0), "{messages}");
        assert!(replies == exported.stdout, "the exports differ");
    });
}

#[test]
fn closures_and_refused_builds_are_replied() {
    with_hosts(|host| {
        let uri = host.uri("ssh", "nix-store");
        let original = host.corpus.store().display().to_string();
        run(host.nix_copy(&original, &uri).arg("--no-check-sigs")).expect(0);
        let root = &*host.corpus.root;
        let mut conversation = Conversation::new();
        let drv = format!("/nix/store/{}-x.drv", "0".repeat(32));
        conversation.number(7).number(0).texts(&[root]);
        // A valid path needs no build.
        let options = |conversation: &mut Conversation| {
            (0..6).for_each(|_| {
                conversation.number(0);
            });
        };
        conversation.number(6).texts(&[root]);
        options(&mut conversation);
        conversation.number(6).texts(&[&format!("{drv}!out")]);
        options(&mut conversation);
        // A derivation with one output.
        conversation.number(8).text(&drv).number(1);
        for text in ["out", &format!("/nix/store/{}-x", "1".repeat(32)), "", ""] {
            conversation.text(text);
        }
        conversation
            .texts(&[])
            .text("x86_64-linux")
            .text("/bin/sh")
            .texts(&[])
            .number(0);
        options(&mut conversation);
        let (code, replies, messages) = conversation.run(&mut serve(host, &["--write"]));
        assert_eq!(code, Some(0), "{messages}");
        let mut expected = Conversation { sent: Vec::new() };
        let mut paths: Vec<&str> = host.corpus.paths.iter().map(String::as_str).collect();
        paths.sort_unstable();
        let refusal = |path: &str| {
            format!(
                "cannot build {path}: this machine has floe, which copies paths and builds none; \
                 build it elsewhere, and copy the result"
            )
        };
        expected.texts(&paths).number(0);
        expected.number(100).text(&refusal(&drv));
        expected.number(9).text(&refusal(&drv));
        (0..5).for_each(|_| {
            expected.number(0);
        });
        assert_eq!(
            replies,
            expected.sent,
            "{}",
            String::from_utf8_lossy(&replies)
        );
        // The real client shows the refusal. The other Nix is unpacked, and cannot start its hook.
        if !host.nix.is_2_8() {
            return;
        }
        let expression = "derivation { name = \"x\"; system = builtins.currentSystem; \
                          builder = \"/bin/sh\"; }";
        let words = [
            "--no-out-link",
            "--max-jobs",
            "0",
            "--builders",
            &uri,
            "-E",
            expression,
        ];
        let mut build = host.nix.command("nix-build", words);
        build.arg("--store").arg(host.scratch.join("local"));
        build
            .env_remove("NIX_REMOTE")
            .env("NIX_CONFIG", "build-users-group =");
        run(&mut build)
            .expect(1)
            .stderr_contains("this machine has floe, which copies paths and builds none");
    });
}

#[test]
fn client_without_rights_changes_nothing() {
    with_hosts(|host| {
        let uri = host.uri("ssh", "nix-store");
        let original = host.corpus.store().display().to_string();
        run(host.nix_copy(&original, &uri).arg("--no-check-sigs")).expect(0);
        let rows = host.nix.store(&host.root(), ["--dump-db"]);
        // Without --write, and with a path whose NAR is not what it says.
        let path = format!("/nix/store/{}-new", "0".repeat(32));
        let add = |hash: &str, body: &[u8]| {
            let mut add = Conversation::new();
            add.number(9).text(&path).text("").text(hash).texts(&[]);
            add.number(0)
                .number(body.len() as u64)
                .number(0)
                .texts(&[])
                .text("");
            add.sent.extend_from_slice(body);
            add
        };
        let hash = "0".repeat(64);
        let refused = |conversation: &Conversation, command: &mut Command, reason: &str| {
            let (code, replies, messages) = conversation.run(command);
            assert_ne!(code, Some(0), "{reason}");
            assert!(replies.is_empty(), "{reason}: {replies:?}");
            assert!(messages.contains(reason), "{messages}");
            assert_eq!(
                host.nix.store(&host.root(), ["--dump-db"]),
                rows,
                "{reason}"
            );
        };
        let nar = [0; 112];
        refused(
            &add(&hash, &nar),
            &mut serve(host, &[]),
            "the client may only read",
        );
        let mut write = serve(host, &["--write"]);
        refused(&add(&hash, &nar), &mut write, "0-new");
        let mut lock = Conversation::new();
        lock.number(12);
        refused(
            &lock,
            &mut serve(host, &["--write"]),
            "the command is \"12\"",
        );
        // A user who does not own the store needs signatures.
        let Some(mut other_user) = setpriv_to_nobody() else {
            return;
        };
        run(Command::new("chmod")
            .arg("-R")
            .arg("a+rwX")
            .arg(host.root()))
        .expect(0);
        run(Command::new("chmod").arg("a+rx").arg(host.scratch.path())).expect(0);
        other_user.arg(host.program("nix-store"));
        other_user
            .args(["--serve", "--write", "--store"])
            .arg(host.root());
        refused(&add(&hash, &nar), &mut other_user, "no signature");
    });
}
