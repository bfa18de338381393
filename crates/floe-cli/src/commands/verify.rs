//! `floe verify`: finds what `nix-store --verify --check-contents` finds, and repairs nothing.

use std::sync::Arc;
use std::time::Instant;

use anyhow::bail;
use floe_config::{Config, parse_store_uri, store_in_root};
use floe_store::{ProblemCause, StoreReader, VerifyProblem};
use floe_transfer::{ErrorKind, PathSpec};
use serde_json::{Value, json};

use super::print;
use crate::args::VerifyArgs;
use crate::display::{eprint_line, is_json};
use crate::exit;
use crate::messages;
use crate::options;

pub(crate) fn run(args: VerifyArgs) -> anyhow::Result<()> {
    let began = Instant::now();
    let environment = options::environment();
    let store_dir = options::parse_store_dir(args.store_dir.as_deref())?;
    let location = match (&args.root, args.store.as_deref().unwrap_or("auto")) {
        (Some(root), _) => store_in_root(root, store_dir.as_ref())?,
        (None, "auto") => {
            let config = Config::load(&environment, &[])?;
            config.resolve_store_uri("auto", store_dir.as_ref(), &environment)?
        }
        (None, named) => parse_store_uri(named, store_dir.as_ref(), &environment)?,
    };
    let Some(layout) = location.layout() else {
        bail!(messages::cache_not_verifiable(location));
    };
    let lock_wait = options::lock_wait(Arc::default());
    let store = StoreReader::open_with(layout.clone(), lock_wait)?;
    let dir = &store.layout().store_dir;
    let find = |text: &String| PathSpec::parse(text, dir)?.find_in_store(&store);
    let paths = args.paths.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let found = store.verify(&paths, args.jobs, &())?;
    if args.json {
        print(json!({
            "paths": found.paths,
            "narBytes": found.nar_bytes,
            "links": found.links,
            "problems": found.problems.iter().map(to_json).collect::<Vec<_>>(),
            "seconds": began.elapsed().as_secs_f64(),
        }))?;
    } else {
        for problem in &found.problems {
            print(problem)?;
        }
    }
    let failed = found.problems.len();
    let line = messages::verified(found.paths, found.nar_bytes, found.links, failed);
    if failed == 0 || !is_json() {
        eprint_line(&line);
    }
    match failed {
        0 => Ok(()),
        _ => Err(exit::failures(&line, failed, ErrorKind::Untrusted)),
    }
}

fn to_json(problem: &VerifyProblem) -> Value {
    let kind = match problem.cause {
        ProblemCause::NotValid => "notValid",
        ProblemCause::Disappeared { .. } => "disappeared",
        ProblemCause::Modified { .. } => "modified",
        ProblemCause::WrongSize { .. } => "wrongSize",
        ProblemCause::Unreadable(_) => "unreadable",
        ProblemCause::ModifiedLink(_) => "modifiedLink",
    };
    json!({ "kind": kind, "path": problem.path, "message": problem.to_string() })
}
