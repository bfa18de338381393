//! `--option`.

use clap::Args;

/// Settings of nix.conf on the command line.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct OptionArgs {
    /// Set the setting NAME of nix.conf, which overrides files and environment; may be repeated
    #[arg(long, num_args = 2, value_names = ["NAME", "VALUE"])]
    option: Vec<String>,
}

impl OptionArgs {
    /// Returns names and values in their order on the command line.
    pub(crate) fn pairs(&self) -> Vec<(&str, &str)> {
        let (pairs, _) = self.option.as_chunks();
        pairs
            .iter()
            .map(|[name, value]| (&**name, &**value))
            .collect()
    }
}
