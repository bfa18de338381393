//! The user presses Tab in bash, zsh and fish.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use floe_testkit::{Corpus, Scratch, corpus, find_tool, run, scratch, wait_until};
use parking_lot::Mutex;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::floe;

/// An interactive shell on a terminal of its own.
struct Terminal {
    shell: Child,
    keyboard: fs::File,
    screen: Arc<Mutex<String>>,
}

impl Terminal {
    /// Starts a shell whose home directory is `home`, with the completion of floe.
    fn start(words: &[&str], home: &Path) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let side = || {
            fs::File::options()
                .read(true)
                .write(true)
                .open(&name)
                .unwrap()
        };
        let program = Path::new(env!("CARGO_BIN_EXE_floe")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        // setsid makes the terminal the one of the shell.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).args(words);
        command
            .env("HOME", home)
            .env("PATH", path)
            .env("TERM", "dumb");
        command
            .env("PS1", PROMPT)
            .env("NIX_CONF_DIR", "/nonexistent");
        command
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_CONFIG_HOME");
        command.current_dir(home);
        command
            .stdin(Stdio::from(side()))
            .stdout(Stdio::from(side()));
        let shell = command.stderr(Stdio::from(side())).spawn().unwrap();
        let screen = Arc::<Mutex<String>>::default();
        let (shown, mut output) = (screen.clone(), fs::File::from(master));
        let keyboard = output.try_clone().unwrap();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The read fails once the shell has ended.
            while let Ok(len @ 1..) = output.read(&mut bytes) {
                shown
                    .lock()
                    .push_str(&String::from_utf8_lossy(&bytes[..len]));
            }
        });
        Terminal {
            shell,
            keyboard,
            screen,
        }
    }

    fn type_keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a line, and waits until the screen shows a text after that.
    fn type_until(&mut self, keys: &str, text: &str) {
        let before = self.screen.lock().len();
        self.type_keys(keys);
        let is_shown = || self.screen.lock()[before..].contains(text);
        wait_until(&format!("{text:?} after {keys:?}"), is_shown);
    }

    /// Presses Tab after a line, and waits for a text. Then clears the line.
    fn complete(&mut self, line: &str, text: &str) {
        self.type_until(&format!("{line}\t"), text);
        // Ctrl-U.
        self.type_until("\u{15}echo cle''ared\r", "cleared");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _: std::io::Result<()> = self.shell.kill();
        let _: std::io::Result<std::process::ExitStatus> = self.shell.wait();
    }
}

/// A home directory with a store, a link and a profile.
fn home() -> Option<(Corpus, Scratch)> {
    let (corpus, home) = (corpus("jq")?, scratch());
    let root = home.join("root");
    let from = corpus.file_url("zstd");
    let mut install = floe(["install", "--from", &from, "--root"]);
    install.arg(&root).arg("-o").arg(home.join("link-to-jq"));
    run(install.args(["--trusted-public-keys", &corpus.key, &corpus.root])).expect(0);
    symlink(&corpus.root, home.join("profile-4711-link")).unwrap();
    symlink("profile-4711-link", home.join("profile")).unwrap();
    Some((corpus, home))
}

/// Types the command lines of an ordinary user.
fn check(mut terminal: Terminal, corpus: &Corpus) {
    let name = |part: &str| {
        let paths = corpus.paths.iter().filter_map(|path| path.split_once('-'));
        let mut names = paths.map(|(_, name)| name);
        names.find(|name| name.contains(part)).unwrap().to_owned()
    };
    let root = name("jq-1");
    terminal.complete("floe inst", "install");
    terminal.complete("floe uninstall --root ~/root jq", &root);
    terminal.complete("floe uninstall --root ~/root link", "link-to-jq");
    terminal.complete("floe info --root ~/root libon", &name("libonig"));
    terminal.complete("floe list --root ~/ro", "root/");
    terminal.complete("floe profile switch --profile ~/profile 4", "4711");
    terminal.complete("floe copy --to fi", "file");
    terminal.complete("floe gc --option netr", "netrc-file");
}

#[test]
fn bash_completes_when_tab_is_pressed() {
    let Some((corpus, home)) = home() else { return };
    let mut terminal = Terminal::start(&["bash", "--norc", "-i"], home.path());
    terminal.type_until("source <(floe completions bash); echo rea''dy\r", "ready");
    check(terminal, &corpus);
}

#[test]
fn zsh_completes_when_tab_is_pressed() {
    let (Some((corpus, home)), Some(_)) = (home(), find_tool("zsh", "zsh")) else {
        return;
    };
    let mut terminal = Terminal::start(&["zsh", "-f", "-i"], home.path());
    let setup = "autoload -U compinit; compinit -u -D; source <(floe completions zsh)";
    terminal.type_until(&format!("{setup}; echo rea''dy\r"), "ready");
    check(terminal, &corpus);
}

#[test]
fn fish_completes_when_tab_is_pressed() {
    let (Some((corpus, home)), Some(_)) = (home(), find_tool("fish", "fish")) else {
        return;
    };
    let mut terminal = Terminal::start(&["fish", "--no-config", "-i"], home.path());
    terminal.type_until("floe completions fish | source; echo rea''dy\r", "ready");
    check(terminal, &corpus);
}

const PROMPT: &str = "$ ";
