//! The options on the page nix-serve(1), from the table of these options.

use clap_mangen::roff::{Roff, bold, italic, roman};

use super::entry;
use crate::commands::nix_serve::args::{
    ENVIRONMENT, Effect, IGNORED_HEADING, NO_HASKELL, OptionEntry, entries,
};

/// Returns the sections of options and environment.
pub(super) fn options() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["OPTIONS"]);
    with_effect(&mut roff, Effect::Applied);
    roff.control("SS", [IGNORED_HEADING]);
    with_effect(&mut roff, Effect::Ignored);
    entry(&mut roff, "+RTS ... -RTS", NO_HASKELL);
    roff.control("SH", ["ENVIRONMENT"]);
    roff.text([roman(ENVIRONMENT.join(", "))]);
    roff
}

fn with_effect(roff: &mut Roff, effect: Effect) {
    for OptionEntry {
        names, value, help, ..
    } in entries().filter(|it| it.effect == effect)
    {
        roff.control("TP", []);
        let mut parts = Vec::new();
        for name in names {
            if !parts.is_empty() {
                parts.push(roman(", "));
            }
            parts.push(bold(name));
        }
        if let Some(value) = value {
            parts.extend([roman(" "), italic(value)]);
        }
        roff.text(parts);
        roff.text([roman(help)]);
    }
}

/// The name of the page.
pub(super) const NAME: &str = "nix-serve";
