//! The manual page of a command.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::super::pages as page;
use super::{entry, name, nix_serve, synopsis};
use crate::exit_code::EXIT_CODES;

/// Renders the page of a command.
pub(super) fn render(command: &Command) -> anyhow::Result<String> {
    let man = Man::new(command.clone())
        // An empty argument, which must be quoted to count.
        .date("\"\"")
        .source(concat!("floe ", env!("CARGO_PKG_VERSION")))
        .manual("Manual of floe");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    synopsis::of_command(command).to_writer(&mut page)?;
    match page::description(name(command)) {
        [] => man.render_description_section(&mut page)?,
        paragraphs => description(paragraphs).to_writer(&mut page)?,
    }
    if name(command) == nix_serve::NAME {
        nix_serve::options().to_writer(&mut page)?;
    } else {
        man.render_options_section(&mut page)?;
    }
    common_sections(command).to_writer(&mut page)?;
    Ok(to_ascii(&String::from_utf8(page)?))
}

fn description(paragraphs: &[&str]) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["DESCRIPTION"]);
    for paragraph in paragraphs {
        roff.control("PP", []);
        roff.text([roman(*paragraph)]);
    }
    roff
}

/// Returns the sections after the options.
fn common_sections(command: &Command) -> Roff {
    let name_of_page = name(command);
    let mut roff = Roff::new();
    if command.has_subcommands() {
        roff.control("SH", ["COMMANDS"]);
        for below in command.get_subcommands() {
            let about = below.get_about().map(ToString::to_string);
            entry(&mut roff, &reference(below), &about.unwrap_or_default());
        }
    }
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in EXIT_CODES {
        entry(&mut roff, &code.to_string(), meaning);
    }
    let files = page::files(name_of_page);
    if !files.is_empty() {
        roff.control("SH", ["FILES"]);
    }
    for file in files {
        entry(&mut roff, file.names, file.content);
    }
    roff.control("SH", ["EXAMPLES"]);
    for example in page::examples(name_of_page) {
        roff.control("PP", []);
        roff.text([roman(format!("{}:", example.purpose))]);
        // Keeps the command line in one line, so that a reader can copy it.
        roff.control("RS", ["4"]).control("nf", []);
        roff.text([bold(example.line)]);
        roff.control("fi", []).control("RE", []);
    }
    roff.control("SH", ["SEE ALSO"]);
    let see_also = match name_of_page {
        page::MAIN => command
            .get_subcommands()
            .map(reference)
            .collect::<Vec<_>>()
            .join(", "),
        page => page::see_also(page).join(", "),
    };
    roff.text([roman(see_also)]);
    roff
}

/// Returns the name of a command's page with its section.
fn reference(command: &Command) -> String {
    format!("{}(1)", name(command))
}

/// Writes a page in ASCII, which every troff reads without a declared encoding.
fn to_ascii(page: &str) -> String {
    let ascii = page.chars().map(|c| match c {
        synopsis::UNBREAKABLE_SPACE => r"\ ".to_owned(),
        synopsis::NO_SENTENCE_END => r"\&".to_owned(),
        c if c.is_ascii() => c.to_string(),
        c => format!("\\[u{:04X}]", u32::from(c)),
    });
    ascii.collect()
}
