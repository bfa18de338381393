//! `floe man` and `floe completions`: groff and the shells accept the output.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use floe_testkit::{corpus, run, scratch, skip};

use crate::support::floe;

/// Returns the commands that `floe --help` lists.
fn commands() -> BTreeSet<String> {
    let help = run(&mut floe(["--help"])).expect(0).stdout;
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.map(|line| line.split_whitespace().next().unwrap().to_owned());
    let names: BTreeSet<String> = names.filter(|name| name != "help").collect();
    assert!(names.contains("install"), "{help}");
    names
}

/// Returns the file of a command's page.
fn file_of(command: &str) -> String {
    match command {
        "nix-serve" => "nix-serve.1".into(),
        _ => format!("floe-{command}.1"),
    }
}

/// Writes all pages, and returns their text by file, without fonts and escapes.
fn pages() -> BTreeMap<String, String> {
    let scratch = scratch();
    run(floe(["man"]).arg(scratch.path())).expect(0);
    let read = |entry: fs::DirEntry| {
        let mut text = fs::read_to_string(entry.path()).unwrap();
        for (escape, plain) in [
            (r"\fB", ""),
            (r"\fI", ""),
            (r"\fR", ""),
            (r"\*(Aq", "'"),
            (r"\&", ""),
            (r"\", ""),
        ] {
            text = text.replace(escape, plain);
        }
        (entry.file_name().into_string().unwrap(), text)
    };
    let entries = fs::read_dir(scratch.path()).unwrap();
    entries.map(|entry| read(entry.unwrap())).collect()
}

/// Returns a section of a page.
fn section<'a>(page: &'a str, name: &str) -> &'a str {
    let starts = [format!(".SH {name}\n"), format!(".SH \"{name}\"\n")];
    let rest = starts.iter().find_map(|start| page.split_once(start));
    let (_, rest) = rest.unwrap_or_else(|| panic!("no section {name}: {page}"));
    rest.split(".SH ").next().unwrap()
}

/// Returns a command for the first installed program. If none is installed, records a skip.
fn program(names: &[&str], args: &[&str]) -> Option<Command> {
    for name in names {
        let places = ["/usr/bin", "/bin", "/usr/local/bin"].map(|dir| Path::new(dir).join(name));
        if let Some(place) = places.iter().find(|place| place.exists()) {
            let mut command = Command::new(place);
            command.args(args);
            return Some(command);
        }
    }
    skip(names[0], "not installed");
    None
}

#[test]
fn man_pages_exist_for_all_commands_and_groff_accepts_them() {
    let scratch = scratch();
    let dir = scratch.join("man1");
    run(floe(["man"]).arg(&dir)).expect(0);
    let pages = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let pages: BTreeSet<String> = pages.map(|name| name.into_string().unwrap()).collect();
    let commands = commands();
    for command in &commands {
        assert!(pages.contains(&file_of(command)), "{command}: {pages:?}");
    }
    assert!(
        pages.contains("floe-bench-copy.1") && pages.contains("floe.1"),
        "{pages:?}"
    );
    let main = run(&mut floe(["man"])).expect(0).stdout;
    assert_eq!(
        main.trim_end(),
        fs::read_to_string(dir.join("floe.1")).unwrap().trim_end()
    );

    let mut looked = 0;
    for page in &pages {
        let Some(mut groff) = program(&["groff"], &["-man", "-ww", "-Tutf8"]) else {
            return;
        };
        let ran = run(groff.arg(dir.join(page))).expect(0);
        assert_eq!(ran.stderr, "", "{page}");
        assert!(ran.stdout.contains("floe"), "{page}");
        looked += 1;
    }
    assert!(looked > commands.len(), "{looked} pages");
}

#[test]
fn man_page_lists_every_option_of_help() {
    let pages = pages();
    let mut compared = 0;
    for command in commands() {
        let help = run(&mut floe([&command, "--help"])).expect(0).stdout;
        let page = &pages[&file_of(&command)];
        let starts = |word: &&str| word.starts_with("--") && word.len() > 2;
        for option in option_lines(&help).filter_map(|line| line.split_whitespace().find(starts)) {
            let option = option.trim_end_matches([',', '.']);
            assert!(page.contains(option), "floe {command} {option}");
            compared += 1;
        }
    }
    assert!(compared > 50, "{compared} options");
}

/// Returns the lines of a help text that begin with an option. The wrapped lines of a description
/// may do so too, but they are indented further.
fn option_lines(help: &str) -> impl Iterator<Item = &str> {
    let lines = help.lines().filter(|line| !line.starts_with("        "));
    lines
        .map(str::trim_start)
        .filter(|line| line.starts_with('-'))
}

#[test]
fn man_page_synopsis_names_the_value_of_every_option() {
    let pages = pages();
    let mut compared = 0;
    for command in commands().iter().filter(|it| *it != "nix-serve") {
        let help = run(&mut floe([command, "--help"])).expect(0).stdout;
        let synopsis = section(&pages[&file_of(command)], "SYNOPSIS");
        for line in option_lines(&help) {
            let words = line
                .split_whitespace()
                .skip_while(|it| !it.starts_with("--"));
            let is_part = |word: &&str| word.starts_with("--") || word.starts_with('<');
            let words: Vec<&str> = words.take_while(is_part).collect();
            let shown = words.join(" ").replace(['<', '>'], "");
            let shown = shown.trim_end_matches("...");
            assert!(
                synopsis.contains(shown),
                "floe {command} {shown}: {synopsis}"
            );
            compared += usize::from(words.len() > 1);
        }
    }
    assert!(compared > 30, "{compared} options with values");
    let install = section(&pages["floe-install.1"], "SYNOPSIS");
    for part in [
        "[--from URL]...\n",
        "[-o|--out-link LINK]\n",
        "\n[PATH]...\n",
    ] {
        assert!(install.contains(part), "{part}: {install}");
    }
}

#[test]
fn man_page_sections_are_complete() {
    let pages = pages();
    for (file, page) in &pages {
        assert!(
            section(page, "EXIT STATUS").contains("no space left"),
            "{file}"
        );
        let see_also = section(page, "SEE ALSO").trim();
        for reference in see_also.split(", ") {
            let name = reference.replace("(1)", ".1");
            let is_ours = name.starts_with("floe") || name == "nix-serve.1";
            assert!(!is_ours || pages.contains_key(&name), "{file}: {reference}");
        }
        assert!(!see_also.is_empty(), "{file}");
    }
    for command in commands() {
        let words = [&*command, "--help"];
        let help = run(&mut floe(words)).expect(0).stdout;
        let (_, examples) = help.split_once("\nExamples:\n").unwrap();
        let on_page = section(&pages[&file_of(&command)], "EXAMPLES");
        for line in examples.lines().map(str::trim) {
            assert!(on_page.contains(line), "{command}: {line}: {on_page}");
        }
    }
    let files = section(&pages["floe-install.1"], "FILES");
    assert!(files.contains("floe/narinfos.sqlite"), "{files}");
}

#[test]
fn help_of_nix_serve_is_the_same_everywhere() {
    let help = run(&mut floe(["nix-serve", "--help"])).expect(0).stdout;
    assert!(help.contains("--disable-keepalive"), "{help}");
    let same = run(&mut floe(["help", "nix-serve"])).expect(0).stdout;
    assert_eq!(same.trim_end(), help.trim_end());
    assert!(commands().contains("nix-serve"));
}

#[test]
fn bash_completes_commands_options_and_values() {
    let script = run(&mut floe(["completions", "bash"])).expect(0).stdout;
    let scratch = scratch();
    let file = scratch.join("floe.bash");
    fs::write(&file, &script).unwrap();
    let Some(mut check) = program(&["bash"], &["-n"]) else {
        return;
    };
    assert_eq!(run(check.arg(&file)).expect(0).stderr, "");
    let program_directory = Path::new(env!("CARGO_BIN_EXE_floe")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", program_directory.display());
    // Does what bash does when the user presses Tab after the last word.
    let complete = |words: &str| {
        let code = format!(
            "source {}; COMP_WORDS=(floe {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             COMP_TYPE=9; _clap_complete_floe floe \"${{COMP_WORDS[COMP_CWORD]}}\" \
             \"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"; complete -p floe",
            file.display()
        );
        let mut bash = program(&["bash"], &["--norc", "-c", &code]).unwrap();
        let ran = run(bash.env("PATH", &path)).expect(0);
        assert!(ran.stdout.contains("_clap_complete_floe"), "{}", ran.stdout);
        assert_eq!(ran.stderr, "");
        let replies = ran
            .stdout
            .lines()
            .filter(|line| !line.starts_with("complete "));
        replies
            .map(|line| line.trim().to_owned())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(complete("nix-se"), ["nix-serve".to_owned()].into());
    assert_eq!(complete("inst"), ["install".to_owned()].into());
    assert_eq!(
        complete("install --out-l"),
        ["--out-link".to_owned()].into()
    );
    assert_eq!(
        complete("install --log-format js"),
        ["json".to_owned()].into()
    );
    // Values of a store.
    if let Some(corpus) = corpus("jq") {
        let (root, profile) = (scratch.join("root"), scratch.join("profile"));
        for path in &corpus.paths[..2] {
            let mut install = floe(["install", "--from", &corpus.file_url("zstd"), "--root"]);
            install.arg(&root).arg("--profile").arg(&profile);
            run(install.args(["--trusted-public-keys", &corpus.key, path])).expect(0);
        }
        let (root, profile) = (root.display(), profile.display());
        let name = corpus.paths[0].split_once('-').unwrap().1;
        let replies = complete(&format!("uninstall --root {root} {}", &name[..4]));
        assert!(replies.contains(name), "{replies:?}");
        let replies = complete(&format!(
            "roots --root {root} --why {}",
            &corpus.paths[0][..20]
        ));
        assert_eq!(replies, [corpus.paths[0].clone()].into());
        let replies = complete(&format!("profile switch --profile {profile} ''"));
        assert!(
            replies.contains("1") && replies.contains("2"),
            "{replies:?}"
        );
    }
    let keys = complete("key ''");
    assert!(
        keys.contains("generate") && keys.contains("public"),
        "{keys:?}"
    );
}

#[test]
fn completion_script_of_every_shell_calls_floe() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = run(&mut floe(["completions", shell])).expect(0).stdout;
        assert!(script.contains("FLOE_COMPLETE"), "{shell}: {script}");
    }
    run(&mut floe(["completions", "tcsh"])).expect(2);
}
