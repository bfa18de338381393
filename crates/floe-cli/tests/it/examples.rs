//! The examples of the manual and the commands of the tutorial, typed as they stand there.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use floe_testkit::{CommandOutput, Scratch, create_certificates, find_tool, run, scratch};

use crate::support::floe;

/// The home of a user, with what the examples name.
struct Home {
    scratch: Scratch,
    tool: String,
    key: String,
}

/// Makes what the examples name, in the user's home.
const PREPARE: &str = r#"
floe demo --keep demo > /dev/null
P=/nix/store/$(basename demo/source/nix/store/*-demo-tool-1.0)
Q=/nix/store/$(basename demo/source/nix/store/*-demo-greeting)
# The demo has damaged a path of its cache.
rm -r demo/cache
floe push --all --root demo/source --to "file://$PWD/demo/cache" \
    --secret-key-file demo/demo.secret-key
from() {
    floe install --root nix-root --from "file://$PWD/demo/cache" \
        --trusted-public-keys "$(floe key public < demo/demo.secret-key)" "$@"
}
from -o result $P
from -o hello $P
for path in $Q $P $Q; do
    from --profile profile $path
    from $path --profile
done
cp demo/demo.secret-key cache.key
cp cache.key new.key
floe key generate next-1 > next.key
chmod 600 next.key
mkdir bin source
echo made > source/file
tar -czf source.tar.gz source
echo $P > made
echo $P | xz > store-paths.xz
floe pin web $P --to "file://$PWD/demo/cache" --secret-key-file cache.key
printf '#!/bin/sh\ncat made\n' > bin/make-paths
chmod +x bin/make-paths
floe serve auth add-user --auth-file logins alice <<< password
echo $P
"#;

impl Home {
    fn new() -> Home {
        let scratch = scratch();
        let home = Home {
            scratch,
            tool: String::new(),
            key: String::new(),
        };
        let tool = home.sh(PREPARE).expect(0).stdout;
        let tool = tool.lines().last().unwrap().to_owned();
        let key = home.sh("floe key public < demo/demo.secret-key");
        let key = key.expect(0).stdout.trim().to_owned();
        Home { tool, key, ..home }
    }

    /// Runs a script in a shell of the user, whose store is below `nix-root`.
    fn sh(&self, script: &str) -> CommandOutput {
        let home = self.scratch.path();
        let program = Path::new(env!("CARGO_BIN_EXE_floe")).parent().unwrap();
        let path = format!(
            "{}/bin:{}:/usr/sbin:/usr/bin:/sbin:/bin",
            home.display(),
            program.display()
        );
        let mut shell = Command::new("bash");
        shell.args(["-e", "-o", "pipefail", "-c", script]);
        shell.current_dir(home).stdin(Stdio::null());
        shell.env("HOME", home).env("PATH", path);
        shell.env("XDG_CACHE_HOME", "/dev/null");
        // No other cache can be reached from a test. The first script makes the key.
        let mut conf = format!("substituters = file://{}/demo/cache\n", home.display());
        if !self.key.is_empty() {
            conf += &format!("trusted-public-keys = {}\n", self.key);
        }
        shell.env("NIX_CONFIG", conf);
        // `run` hides the variable of the store.
        shell.env(
            "NIX_REMOTE",
            format!("local?root={}/nix-root", home.display()),
        );
        run(&mut shell)
    }

    /// Replaces what only exists in the example.
    fn on_this_machine(&self, example: &str) -> String {
        let home = self.scratch.path().display();
        let hash = &self.tool["/nix/store/".len()..][..32];
        let cache = format!("file://{home}/demo/cache");
        let named = format!(
            "--names demo=file:demo/names.toml --from {cache} --trusted-public-keys {} demo-tool",
            self.key
        );
        let mut line = example.to_owned();
        for (from, to) in [
            ("/nix/store/HASH-hello-2.12.1", &*self.tool),
            (
                "--out-link hello hello",
                &format!("--out-link by-name {named}"),
            ),
            ("floe run jq --", &format!("floe run {named} --")),
            ("floe lock jq ripgrep", &format!("floe lock {named}")),
            (
                "floe search ripgrep",
                "floe search --names file:demo/names.toml demo",
            ),
            (
                "floe search --check-sources",
                "floe search --check-sources --names file:demo/names.toml",
            ),
            ("python3 requests", "demo tool"),
            (
                "--follow web",
                &format!("--follow web --trusted-public-keys {}", self.key),
            ),
            ("/nix/store/HASH-NAME", &self.tool),
            (
                "floe link-names /usr/local/bin",
                "env PATH=/nonexistent $(command -v floe) link-names bin",
            ),
            ("/bin/hello", "/bin/demo"),
            ("HASH1 HASH2 -- make", &format!("{hash} {hash} -- demo")),
            ("HASH1 HASH2", &format!("{hash} {hash}")),
            ("HASH", hash),
            (
                "'s3://BUCKET?region=eu-west-1'",
                &format!("file://{home}/bucket"),
            ),
            ("https://cache.nixos.org", &cache),
            ("https://cache.example.org", &cache),
            ("NAME:KEY", &self.key),
            ("file:///srv/cache", &format!("file://{home}/srv")),
            ("/etc/floe/", ""),
            ("/nix/var/nix/profiles/system", "./profile"),
            ("--from /mnt", "--from demo/source"),
            ("< /nix-path-registration", "< <(floe nix-store --dump-db)"),
            ("root=/mnt'", "root=$PWD/hosted' < /dev/null"),
            (
                "--program jq ./result -- . file.json",
                "--program demo ./result",
            ),
            (
                "add-user --auth-file logins",
                "add-user --auth-file users <<< password",
            ),
        ] {
            line = line.replace(from, to);
        }
        line
    }
}

/// Returns the examples of all commands, from their help.
fn examples(words: &[String], found: &mut BTreeSet<String>) {
    let help = run(floe(words).arg("--help")).expect(0).stdout;
    if let Some((_, examples)) = help.split_once("\nExamples:\n") {
        let lines = examples.lines().filter(|line| line.starts_with("      "));
        found.extend(lines.map(|line| line.trim().to_owned()));
    }
    let Some((_, commands)) = help.split_once("\nCommands:\n") else {
        return;
    };
    let commands = commands.lines().take_while(|line| !line.is_empty());
    for line in commands.filter(|line| !line.starts_with("   ")) {
        let name = line.split_whitespace().next().unwrap().to_owned();
        if name != "help" {
            examples(&[words, &[name]].concat(), found);
        }
    }
}

/// Parts of examples that need another machine, a fixed port, or a build of Nix.
const NOT_HERE: &[&str] = &["@HOST", "nix-serve ", "floe bench ", "floe log "];

#[test]
fn examples_of_the_manual_work() {
    let Some(openssl) = find_tool("openssl", "openssl") else {
        return;
    };
    let mut found = BTreeSet::new();
    examples(&[], &mut found);
    let home = Home::new();
    let place = home.scratch.path();
    let [certificate, key] = create_certificates(&openssl, place).server_files;
    fs::copy(certificate, place.join("fullchain.pem")).unwrap();
    fs::copy(&key, place.join("privkey.pem")).unwrap();
    fs::set_permissions(place.join("privkey.pem"), fs::Permissions::from_mode(0o600)).unwrap();
    let here = |line: &&String| !NOT_HERE.iter().any(|part| line.contains(part));
    let mut ran = 0;
    for example in found.iter().filter(here) {
        let mut line = home.on_this_machine(example);
        if line == "floe doctor" {
            // The sources of names are on the internet.
            line += " --offline";
        }
        if line.contains("floe serve --") && !line.contains("--check") {
            // The server would not end. Its port may be in use.
            let line_with_port = line.replace("127.0.0.1:5000", "127.0.0.1:0");
            line = line_with_port.replace(":443", "127.0.0.1:0") + " --check";
            line = line.replace("--port 80 ", "--listen 127.0.0.1:0 ");
        }
        let output = home.sh(&line);
        assert_eq!(
            output.code,
            Some(0),
            "{example}\n{line}\n{}{}",
            output.stdout,
            output.stderr
        );
        ran += 1;
    }
    assert!(ran > 45, "{ran} examples of {}", found.len());
}

/// Returns the commands of a document from a heading on.
fn commands(document: &str, heading: &str) -> Vec<String> {
    let (_, rest) = document.split_once(heading).unwrap();
    let blocks = rest.split("```\n").skip(1).step_by(2);
    let joined: Vec<String> = blocks.map(|block| block.replace("\\\n", "")).collect();
    let lines = joined.iter().flat_map(|block| block.lines());
    let commands = lines.filter_map(|line| line.strip_prefix("$ "));
    commands.map(str::to_owned).collect()
}

#[test]
fn commands_of_the_tutorial_work() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = fs::read_to_string(root.join("docs/tutorial.md")).unwrap();
    let typed = commands(&document, "## See it work");
    assert!(typed.len() > 20, "{typed:?}");
    let home = Home {
        scratch: scratch(),
        tool: String::new(),
        key: String::new(),
    };
    let port = floe_testkit::free_ports::<1>()[0].to_string();
    let mut script = String::new();
    for command in &typed {
        let command = command.replace("5000", &port);
        script.push_str(&match &*command {
            damaged if damaged.ends_with("verify --root root2") => {
                format!("code=0; {damaged} || code=$?; [ $code = 3 ]\n")
            }
            server if server.starts_with("floe serve") => {
                format!(
                    "{server}\nuntil curl -sf 127.0.0.1:{port}/nix-cache-info; do kill -0 $!; done\n"
                )
            }
            other => format!("{other}\n"),
        });
    }
    script.push_str("kill %1; wait %1\n");
    let ran = home.sh(&script).expect(0);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines.iter().filter(|line| **line == "demo").count(), 3);
    assert!(
        ran.stderr.contains("1 problem, 1 repaired"),
        "{}",
        ran.stderr
    );
}
