//! `floe diff`: shows how two closures differ.

pub(crate) mod args;
pub(crate) mod page;

use anyhow::bail;
use serde_json::{Value, json};

use crate::args::PathArgs;
use crate::closure_diff::{Change, closure_diff};
use crate::closures::Closures;
use crate::stdout::print;
use args::DiffArgs;

pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<()> {
    let paths = vec![args.before.clone(), args.after.clone()];
    let closures = Closures::query(&args.closure.query, &PathArgs::new(false, false, paths))?;
    let [before, after] = &closures.roots[..] else {
        bail!("cannot compare {} paths; try two", closures.roots.len());
    };
    let changes = closure_diff([before, after].map(|root| {
        let closure = closures.closure(root).into_iter();
        closure.map(|path| (path, closures.nar_size(path)))
    }));
    if args.closure.json {
        let changes = changes.iter().map(Change::to_json);
        return print(json!({ "changes": changes.collect::<Vec<Value>>() }));
    }
    changes.iter().try_for_each(print)
}
