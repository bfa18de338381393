//! The manual pages of all commands, as `--help` and `floe man` use them.

use clap::Command;

use super::{PAGES, nix_serve};
use crate::page::{AWS, Example, File, NARINFOS, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// The name of the page of floe itself.
pub(crate) const MAIN: &str = "floe";

/// The files on the page of floe itself.
const ALL_FILES: &[File] = &[STORE, USER_STORE, NIX_CONF, NETRC, AWS, NARINFOS];

/// Returns the examples on a page.
pub(crate) fn examples(page: &str) -> Vec<Example> {
    if page == MAIN {
        let all = pages().flat_map(|it| it.examples).copied();
        return all.filter(|it| it.is_on_main_page).collect();
    }
    find(page).map_or(Vec::new(), |it| it.examples.to_vec())
}

/// Returns the paragraphs that explain a command.
pub(crate) fn description(page: &str) -> &'static [&'static str] {
    find(page).map_or(&[], |it| it.description)
}

/// Returns the files on a page.
pub(crate) fn files(page: &str) -> &'static [File] {
    if page == MAIN {
        return ALL_FILES;
    }
    find(page).map_or(&[], |it| it.files)
}

/// Returns the pages that a page refers to, with their sections.
pub(crate) fn see_also(page: &str) -> Vec<&'static str> {
    let related = find(page).map_or(&[][..], |it| it.see_also);
    ["floe(1)"].iter().chain(related).copied().collect()
}

/// Returns the examples of a page as the last part of `--help`.
pub(crate) fn help(page: &str) -> String {
    Example::list(&examples(page))
}

fn find(page: &str) -> Option<&'static Page> {
    pages().find(|it| it.name == page)
}

fn pages() -> impl Iterator<Item = &'static Page> {
    PAGES.iter().copied().flatten()
}

/// Adds the examples of each page to the help of its command.
pub(super) fn with_examples(command: Command) -> Command {
    with_examples_of(command, MAIN)
}

fn with_examples_of(command: Command, page: &str) -> Command {
    let command = command.mut_subcommands(|below| {
        let page = match below.get_display_name() {
            Some(name) => name.to_owned(),
            None => format!("{page}-{}", below.get_name()),
        };
        with_examples_of(below, &page)
    });
    if page == NIX_SERVE {
        return command.override_help(nix_serve::help());
    }
    command.after_help(help(page))
}

/// The page of the command with the options of nix-serve.
const NIX_SERVE: &str = "nix-serve";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    use super::super::parse;
    use crate::commands::Cli;

    #[test]
    fn example_lines_parse_and_belong_to_their_page() {
        for page in pages().filter(|it| it.name != "nix-serve") {
            for Example { line, .. } in page.examples {
                let command = &line[line.find("floe ").unwrap()..];
                let command = command.split(['|', '<', '>', ')']).next().unwrap();
                let words = shell_words::split(command).unwrap();
                let parsed = parse(&words);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
                assert!(
                    words.join("-").starts_with(page.name),
                    "{line}: {}",
                    page.name
                );
            }
        }
    }

    #[test]
    fn each_page_explains_its_command() {
        for page in pages() {
            let text = page.description.join(" ");
            assert!(
                text.len() > 80 && text.ends_with('.'),
                "{}: {text}",
                page.name
            );
        }
    }

    #[test]
    fn help_lines_fit_on_a_terminal() {
        for page in pages().map(|it| it.name).chain([MAIN]) {
            for line in help(page).lines() {
                assert!(line.chars().count() <= 100, "{line}");
            }
        }
    }

    fn names(command: &Command, found: &mut Vec<String>) {
        for below in command.get_subcommands() {
            let name = below.get_display_name().unwrap_or(below.get_name());
            found.push(name.to_owned());
            names(below, found);
        }
    }

    #[test]
    fn every_command_has_examples_and_related_pages() {
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        let mut commands = Vec::new();
        names(&command, &mut commands);
        assert!(commands.len() > 30, "{commands:?}");
        for name in &commands {
            let page = find(name);
            let page = page.unwrap_or_else(|| panic!("{name} has no page in its folder"));
            assert!(!page.examples.is_empty(), "{name}");
            assert!(!page.see_also.is_empty(), "{name}");
        }
        for page in pages() {
            assert!(commands.iter().any(|it| it == page.name), "{}", page.name);
        }
        // A command that opens a store names it, and its settings.
        let opens_store = |name: &str| !NO_STORE.iter().any(|it| name.starts_with(it));
        for page in pages().filter(|it| opens_store(it.name)) {
            assert!(page.files.contains(&STORE), "{}", page.name);
        }
    }

    /// Commands that open no store of the user.
    const NO_STORE: &[&str] = &[
        "floe-bench",
        "floe-cache",
        "floe-completions",
        "floe-config",
        "floe-demo",
        "floe-link-names",
        "floe-hash",
        "floe-key",
        "floe-lock",
        "floe-restore",
        "floe-man",
        "floe-nix-config-show",
        "floe-pin",
        "floe-pins",
        "floe-search",
        "floe-serve-auth",
        "floe-unpin",
    ];
}
