//! `floe verify` of a store behind a Nix daemon, which verifies and repairs it itself.

use std::sync::{Arc, mpsc};
use std::time::Instant;

use anyhow::{anyhow, bail};
use floe_transfer::{Cancel, ErrorKind, Events, Session, SourceContext, StoreConfig};
use serde_json::json;

use crate::commands::verify::args::VerifyArgs;
use crate::display::{Display, eprint_line, is_json};
use crate::exit::{self, UsageError};
use crate::signals;
use crate::stdout::print;

/// Lets the daemon verify its store.
pub(super) fn verify(args: &VerifyArgs, store: &dyn StoreConfig) -> anyhow::Result<()> {
    let is_cache = || {
        anyhow!(
            "cannot verify {store}: it is a binary cache; copy its paths into a store with floe \
             copy, which verifies them"
        )
    };
    // Only a store with substituters of its own has a daemon.
    if !store.facts().can_substitute {
        return Err(is_cache());
    }
    if args.stdin || !args.paths.is_empty() {
        bail!(UsageError(format!(
            "cannot verify single paths of {store}: its daemon verifies whole stores; leave out \
             the paths"
        )));
    }
    if !args.from.is_empty() || args.refresh {
        bail!(UsageError(format!(
            "cannot repair {store} from another cache: its daemon uses its own substituters; leave \
             out --from and --refresh"
        )));
    }
    let began = Instant::now();
    let cancel = Cancel::default();
    signals::cancel_on_signals(&cancel)?;
    let session = Session::new(cancel, Events::new(Arc::new(Display::default())));
    let (opened, _opened) = mpsc::channel();
    let source = store.open_source(&SourceContext {
        session: &session,
        are_substituters: false,
        opened,
    })?;
    let Some(daemon) = source.as_verifier() else {
        return Err(is_cache());
    };
    let has_problems = daemon.verify_store(args.repair)?;
    if args.json {
        print(json!({
            "problemsRemain": has_problems,
            "seconds": began.elapsed().as_secs_f64(),
        }))?;
    }
    let result = if has_problems {
        "problems remain"
    } else {
        "no problem remains"
    };
    let line = format!("the daemon of {store} verified its store: {result}");
    if !has_problems {
        eprint_line(&line);
        return Ok(());
    }
    if !is_json() {
        eprint_line(&line);
    }
    Err(exit::reported_failures(&line, 1, ErrorKind::Untrusted))
}
