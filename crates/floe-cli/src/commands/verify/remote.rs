//! `floe verify` of a store behind a Nix daemon, which verifies and repairs it itself.

use std::sync::{Arc, mpsc};
use std::time::Instant;

use anyhow::bail;
use floe_transfer::{Cancel, ErrorKind, Events, Session, SourceContext, StoreConfig};
use serde_json::json;

use crate::commands::verify::args::VerifyArgs;
use crate::display::{Display, eprint_line, is_json};
use crate::exit::{self, UsageError};
use crate::messages;
use crate::signals;
use crate::stdout::print;

/// Lets the daemon verify its store.
pub(super) fn verify(args: &VerifyArgs, store: &dyn StoreConfig) -> anyhow::Result<()> {
    // Only a store with substituters of its own has a daemon.
    if !store.facts().can_substitute {
        bail!(messages::cache_not_verifiable(store));
    }
    if args.stdin || !args.paths.is_empty() {
        bail!(UsageError(messages::paths_not_verifiable(store)));
    }
    if !args.from.is_empty() || args.refresh {
        bail!(UsageError(messages::repairs_from_own_substituters(store)));
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
        bail!(messages::cache_not_verifiable(store));
    };
    let has_problems = daemon.verify_store(args.repair)?;
    if args.json {
        print(json!({
            "problemsRemain": has_problems,
            "seconds": began.elapsed().as_secs_f64(),
        }))?;
    }
    let line = messages::verified_by_daemon(store, has_problems);
    if !has_problems {
        eprint_line(&line);
        return Ok(());
    }
    if !is_json() {
        eprint_line(&line);
    }
    Err(exit::failures(&line, 1, ErrorKind::Untrusted))
}
