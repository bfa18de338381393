//! `floe cache rotate-key`: signs with a new key what the old key has signed.

use std::slice;

use anyhow::{Context as _, bail};
use floe_config::read_secret_keys;
use floe_copy::{KeyRotation, RotatedKey};
use floe_format::{PublicKey, SecretKey};
use floe_transfer::{ErrorKind, StoreConfig};
use serde_json::json;

use super::ChosenCache;
use super::args::CacheRotateKeyArgs;
use crate::display::{eprint_error, eprint_line, warn};
use crate::exit::{self, UsageError};
use crate::messages::counted;
use crate::options::environment;
use crate::stdout::print;

pub(super) fn run(args: &CacheRotateKeyArgs) -> anyhow::Result<()> {
    let (old, new) = keys(args)?;
    // The keys of the URI and of the configuration do not count.
    let chosen = ChosenCache::with(&args.of, None, |settings| {
        settings.context.secret_keys.clear();
        Ok(())
    })?;
    let cache = chosen.open(args.dry_run)?;
    let rotation = KeyRotation {
        cache: cache.inventory()?,
        store_dir: cache.dir(),
        old: &old,
        new: &new,
        remove_old: args.remove_old,
        dry_run: args.dry_run,
        cancel: &chosen.cancel,
    };
    let rotated = rotation.run();
    let rotated = rotated.map_err(|error| exit::explain_interrupt(error.into(), INTERRUPTED))?;
    report(args, &*chosen.store, (&old, &new), &rotated)
}

const INTERRUPTED: &str = "interrupted; signatures that were changed stay, and another run goes on";

/// Returns the old and the new key.
fn keys(args: &CacheRotateKeyArgs) -> anyhow::Result<(PublicKey, SecretKey)> {
    let old = PublicKey::parse(args.old_key.trim());
    let old = old.map_err(|error| {
        UsageError(format!(
            "cannot use the old key: {}; give its public key",
            error.reason()
        ))
    })?;
    let file = std::path::absolute(&args.key_file)?;
    let (keys, warnings) = read_secret_keys(slice::from_ref(&file), &environment())?;
    warnings.iter().for_each(warn);
    let new = keys.into_iter().next().context("a file without a key")?;
    if new.name() == old.name() {
        bail!(UsageError(format!(
            "cannot rotate the key {}: the new key has the same name, so that clients cannot trust \
             both; make one of another name with floe key generate",
            old.name()
        )));
    }
    Ok((old, new))
}

fn report(
    args: &CacheRotateKeyArgs,
    store: &dyn StoreConfig,
    (old, new): (&PublicKey, &SecretKey),
    rotated: &RotatedKey,
) -> anyhow::Result<()> {
    let (paths, pins) = (rotated.paths.len(), rotated.pins.len());
    let realisations = rotated.realisations.len();
    let failed = rotated.failures.len();
    if args.of.json {
        print(json!({
            "paths": paths,
            "pins": pins,
            "realisations": realisations,
            "oldKey": old.name(),
            "newKey": new.name(),
            "failed": failed,
        }))?;
    }
    for (name, reason) in &rotated.failures {
        eprint_error(format_args!("cannot sign {name}: {reason}"));
    }
    let (verb, removed) = match (args.dry_run, args.remove_old) {
        (true, false) => ("would sign", ""),
        (true, true) => ("would sign", ", and would remove the signatures of "),
        (false, false) => ("signed", ""),
        (false, true) => ("signed", ", and removed the signatures of "),
    };
    let removed = match removed {
        "" => String::new(),
        words => format!("{words}{}", old.name()),
    };
    let changed = paths + pins + realisations;
    if changed + failed == 0 && !rotated.has_old {
        eprint_line(format_args!(
            "nothing to do: no path in {store} has a signature of {}",
            old.name()
        ));
        return Ok(());
    }
    if changed + failed == 0 {
        eprint_line(format_args!(
            "nothing to do: whatever {} has signed in {store} has the signature of {}",
            old.name(),
            new.name()
        ));
        return Ok(());
    }
    if changed > 0 {
        eprint_line(format_args!(
            "{verb} {}, {} and {} of {store} as {}{removed}",
            counted(paths, "path"),
            counted(pins, "pin"),
            counted(realisations, "realisation"),
            new.name()
        ));
    }
    match failed {
        0 => Ok(()),
        failed => {
            let line = format!("cannot sign {}", counted(failed, "object"));
            Err(exit::failures(&line, failed, ErrorKind::Untrusted))
        }
    }
}
