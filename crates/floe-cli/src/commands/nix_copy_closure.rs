//! `floe nix-copy-closure`: `floe copy` with the options of Nix's command, also under its name.

pub(crate) mod args;
pub(crate) mod page;

use anyhow::{Context as _, bail};
use clap::Parser as _;
use floe_config::StoreAccess;
use floe_format::Derivation;
use floe_format::derivation::DERIVATION_LEN_MAX;
use floe_store::{StoreReader, read_regular_file};
use floe_transfer::PathSpec;
use floe_transfer::url::redact_credentials;

use crate::commands::{Cli, Command};
use crate::display::warn;
use crate::exit::UsageError;
use crate::options::Settings;
use crate::path_names;
use args::NixCopyClosureArgs;

pub(crate) fn run(args: &NixCopyClosureArgs) -> anyhow::Result<()> {
    let mut uri = store_uri(&args.host)?;
    if args.bzip2 || args.xz {
        warn("ssh has one compression: --bzip2 and --xz mean --gzip, as in Nix");
    }
    if args.gzip || args.bzip2 || args.xz {
        uri += "?compress=true";
    }
    let mut paths = args.paths.clone();
    if args.include_outputs {
        paths.extend(outputs(args)?);
    }
    let direction = if args.from { "--from" } else { "--to" };
    // Nix's command demands no signatures either.
    let mut line = vec!["floe", "copy", "--no-check-sigs", direction, &uri];
    if args.use_substitutes && args.from {
        warn("ignoring --use-substitutes: floe fetches all paths from the named machine");
    } else if args.use_substitutes {
        line.push("--substitute-on-destination");
    }
    line.extend(args.dry_run.then_some("--dry-run"));
    let root = args.local.root.as_ref();
    let root = root.map(|root| root.display().to_string());
    line.extend(root.iter().flat_map(|root| ["--root", root]));
    let store = args.local.store.iter();
    line.extend(store.flat_map(|store| ["--store", store]));
    let options = args.options.pairs().into_iter();
    line.extend(options.flat_map(|(name, value)| ["--option", name, value]));
    line.push("--");
    line.extend(paths.iter().map(String::as_str));
    match Cli::try_parse_from(line)?.command {
        Command::Copy(copy) => super::copy::run(copy),
        _ => bail!("floe copy is another command"),
    }
}

/// Returns the valid outputs of the derivations in the closures.
fn outputs(args: &NixCopyClosureArgs) -> anyhow::Result<Vec<String>> {
    if args.from {
        bail!(UsageError(
            "cannot use --include-outputs with --from: floe reads derivations only here; name the \
             outputs"
                .into()
        ));
    }
    let settings = Settings::load(&args.options, None)?;
    let store = settings.store(args.local.choice(), StoreAccess::Read)?;
    let Some(layout) = store.layout() else {
        bail!(UsageError(format!(
            "cannot use --include-outputs: {store} is not a local store"
        )));
    };
    let reader = StoreReader::open(layout.clone())?;
    let dir = &layout.store_dir;
    let named = path_names::follow(layout, &args.paths)?;
    let named = named.iter().map(|text| {
        let spec = PathSpec::parse(text, dir)?;
        Ok::<_, anyhow::Error>(spec.find_in_store(&reader)?)
    });
    let closure = reader.closure_paths(&named.collect::<Result<Vec<_>, _>>()?)?;
    let mut outputs = Vec::new();
    for path in &closure {
        let Ok(name) = Derivation::name_from_path(path) else {
            continue;
        };
        let file = reader.real_path(path);
        let text = read_regular_file(&file, DERIVATION_LEN_MAX as u64)
            .with_context(|| format!("cannot read the derivation {}", file.display()))?;
        let derivation = Derivation::parse(&text, dir, name)?;
        for output in derivation.output_paths(dir, name).into_values().flatten() {
            if reader.is_valid(&output)? {
                outputs.push(dir.full_path(&output));
            }
        }
    }
    Ok(outputs)
}

/// Returns the URI of the store of `[USER@]HOST[:PORT]`. As with Nix, `ssh://` may stand before it.
fn store_uri(host: &str) -> anyhow::Result<String> {
    let schemes = ["ssh-ng://", "ssh://"];
    let address = schemes.iter().find_map(|scheme| host.strip_prefix(scheme));
    let address = address.unwrap_or(host);
    // It comes from inventories, and must not set parameters, which name programs.
    if let Some(other) = address.chars().find(|it| "/?#".contains(*it)) {
        let host = redact_credentials(host);
        bail!(UsageError(format!(
            "cannot use {host:?} as a host: it has the character {other:?}; use \
             [USER@]HOST[:PORT], or floe copy for a store URI"
        )));
    }
    // A zone of an IPv6 address follows a percent sign, which has another meaning in a URI.
    Ok(format!("ssh-ng://{}", address.replace('%', "%25")))
}

/// The name of the command, as that of Nix.
pub(super) const NAME: &str = "nix-copy-closure";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_no_store_uri() {
        for (host, uri) in [
            ("host", "ssh-ng://host"),
            ("ssh://me@host:22", "ssh-ng://me@host:22"),
            ("ssh-ng://host", "ssh-ng://host"),
            ("fe80::1%eth0", "ssh-ng://fe80::1%25eth0"),
        ] {
            assert_eq!(store_uri(host).unwrap(), uri);
        }
        for host in [
            "localhost?remote-program=sh",
            "localhost/?remote-program=sh",
            "host#x",
            "https://host",
        ] {
            let error = store_uri(host).unwrap_err().to_string();
            assert!(error.contains("as a host"), "{error}");
        }
        let error = store_uri("http://u:secret@h?x").unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
