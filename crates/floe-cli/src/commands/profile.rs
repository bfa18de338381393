//! `floe profile`: the generations of a profile.

pub(crate) mod args;
pub(crate) mod page;

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use anyhow::bail;
use floe_store::{Generation, GenerationSpec, Generations, Profile, StoreReader};
use serde_json::{Value, json};

use crate::closure_diff::{Change, closure_diff};
use crate::default_profile::DefaultProfile;
use crate::display::{eprint_line, warn};
use crate::exit::UsageError;
use crate::options;
use crate::root_links::warn_of_skipped_rows;
use crate::stdout::print;
use crate::store_choice::LocalStore;
use crate::times;
use args::{ProfileArgs, ProfileCommand};

pub(crate) fn run(command: &ProfileCommand) -> anyhow::Result<()> {
    let args = command.args();
    match command {
        ProfileCommand::List(_) => list(args),
        ProfileCommand::History(_) => history(args, true),
        ProfileCommand::DiffClosures(_) => history(args, false),
        ProfileCommand::Rollback { to, .. } => switch(args, *to),
        ProfileCommand::Switch { generation, .. } => switch(args, Some(*generation)),
        ProfileCommand::WipeHistory {
            older_than,
            dry_run,
            ..
        } => {
            let spec = match older_than {
                None => GenerationSpec::Old,
                Some(text) => parse_older_than(text)?,
            };
            delete(args, &spec, *dry_run)
        }
        ProfileCommand::DeleteGenerations { spec, dry_run, .. } => {
            delete(args, &parse_specs(spec)?, *dry_run)
        }
    }
}

fn profile(args: &ProfileArgs) -> anyhow::Result<Profile> {
    let store = LocalStore::find(&args.store)?;
    Ok(match &args.profile {
        Some(path) => Profile::at(path)?,
        None => DefaultProfile::find(&store.layout, &store.settings)?.profile,
    })
}

fn list(args: &ProfileArgs) -> anyhow::Result<()> {
    let Generations { all, current } = profile(args)?.generations()?;
    if args.store.json {
        let all = all.iter().map(|it| to_json(it, current));
        return print(json!({ "generations": all.collect::<Vec<_>>() }));
    }
    print_lines(&all, current)
}

/// Prints a line for each generation, as nix-env does.
pub(in crate::commands) fn print_lines(
    all: &[Generation],
    current: Option<u64>,
) -> anyhow::Result<()> {
    for generation in all {
        let time = times::date_and_time(generation.created);
        let is_current = current == Some(generation.number);
        let current = if is_current { "(current)" } else { "" };
        // The line of `nix-env --list-generations`.
        print(format_args!("{:4}   {time}   {current}", generation.number))?;
    }
    Ok(())
}

fn to_json(generation: &Generation, current: Option<u64>) -> Value {
    json!({
        "number": generation.number,
        "path": generation.target.display().to_string(),
        "created": times::seconds(generation.created),
        "isCurrent": current == Some(generation.number),
    })
}

/// Shows what each generation changed. `with_heads` also shows the generations.
fn history(args: &ProfileArgs, with_heads: bool) -> anyhow::Result<()> {
    let Generations { all, current } = profile(args)?.generations()?;
    let store = LocalStore::find(&args.store)?.open()?;
    let mut shown = Vec::new();
    for (index, generation) in all.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| &all[before]);
        let is_known = is_valid(&store, generation)?;
        if !is_known {
            warn(format_args!(
                "generation {} is not a valid path of this store, so its changes are unknown: {}",
                generation.number,
                generation.target.display()
            ));
        }
        let changes = match before {
            Some(before) if is_known && is_valid(&store, before)? => {
                Some(changes(&store, before, generation)?)
            }
            Some(_) => None,
            None => Some(Vec::new()),
        };
        if args.store.json {
            let mut object = to_json(generation, current);
            let changes = changes.as_ref();
            let changes = changes.map(|all| all.iter().map(Change::to_json));
            object["changes"] = changes.map_or(Value::Null, Iterator::collect);
            shown.push(object);
            continue;
        }
        if with_heads || before.is_some() {
            let time = times::date_and_time(generation.created);
            let is_current = current == Some(generation.number);
            let current = if is_current { ", current" } else { "" };
            let (number, target) = (generation.number, generation.target.display());
            print(format_args!(
                "generation {number} ({time}{current}): {target}"
            ))?;
        }
        let changes = changes.into_iter().flatten();
        changes
            .map(|change| format!("  {change}"))
            .try_for_each(print)?;
    }
    warn_of_skipped_rows(&store);
    if args.store.json {
        print(json!({ "generations": shown }))
    } else {
        Ok(())
    }
}

/// Whether the path of a generation is valid in the store.
fn is_valid(store: &StoreReader, generation: &Generation) -> anyhow::Result<bool> {
    Ok(match generation.store_path(&store.layout().store_dir) {
        Some(path) => store.is_valid(&path)?,
        None => false,
    })
}

fn changes(
    store: &StoreReader,
    before: &Generation,
    after: &Generation,
) -> anyhow::Result<Vec<Change>> {
    let dir = &store.layout().store_dir;
    let closure = |generation: &Generation| {
        let path = generation.store_path(dir);
        store.closure(path.as_slice())
    };
    let (before, after) = (closure(before)?, closure(after)?);
    Ok(closure_diff([&before, &after].map(|closure| {
        closure.iter().map(|info| (&info.path, info.nar_size))
    })))
}

fn switch(args: &ProfileArgs, to: Option<u64>) -> anyhow::Result<()> {
    let profile = profile(args)?;
    let store = LocalStore::find(&args.store)?.open()?;
    let lock_wait = options::lock_wait(Default::default());
    let check = |generation: &Generation| {
        let path = generation.store_path(&store.layout().store_dir);
        // A link elsewhere may lead into another store.
        let is_kept = match path {
            Some(path) => store.path_info(&path)?.is_some(),
            None => true,
        };
        if is_kept {
            Ok(())
        } else {
            bail!(
                "cannot switch to generation {}: the store does not have {}; try floe install, or \
                 another generation",
                generation.number,
                generation.target.display()
            )
        }
    };
    let (before, now) = profile.switch(store.layout(), to, &lock_wait, check)?;
    if args.store.json {
        return print(json!({ "before": before, "now": now }));
    }
    let profile = profile.path().display();
    eprint_line(match before {
        Some(before) if before == now => {
            format!("nothing to do: {profile} is at generation {now}")
        }
        Some(before) => format!("switched {profile} from generation {before} to {now}"),
        None => format!("switched {profile} to generation {now}"),
    });
    Ok(())
}

fn delete(args: &ProfileArgs, spec: &GenerationSpec, dry_run: bool) -> anyhow::Result<()> {
    let profile = profile(args)?;
    let specs = std::slice::from_ref(spec);
    let deleted = if dry_run {
        profile.find_deletable(specs)?
    } else {
        profile.delete(specs, &options::lock_wait(Default::default()))?
    };
    if args.store.json {
        let numbers: Vec<u64> = deleted.iter().map(|it| it.number).collect();
        return print(json!({ "deleted": numbers }));
    }
    if deleted.is_empty() {
        let none = match spec {
            GenerationSpec::Old => "no other generation",
            _ => "no such generation",
        };
        eprint_line(format_args!(
            "nothing to delete: {} has {none}",
            profile.path().display()
        ));
    }
    report_deleted(&profile, &deleted, dry_run);
    Ok(())
}

/// Prints a line for each generation.
pub(in crate::commands) fn report_deleted(profile: &Profile, all: &[Generation], dry_run: bool) {
    let verb = if dry_run { "would delete" } else { "deleted" };
    let profile = profile.path().display();
    for generation in all {
        let number = generation.number;
        eprint_line(format_args!("{verb} generation {number} of {profile}"));
    }
}

/// Parses numbers, or one rule: `old`, `30d`, `+5`.
pub(in crate::commands) fn parse_specs(texts: &[String]) -> Result<GenerationSpec, UsageError> {
    if let [text] = texts {
        if text == "old" {
            return Ok(GenerationSpec::Old);
        }
        if let Some(spec) = older_than_spec(text) {
            return Ok(spec);
        }
        if let Some(count) = text.strip_prefix('+').and_then(|count| count.parse().ok()) {
            return match count {
                0 => Err(UsageError(
                    "cannot keep 0 generations: the current one always stays; give a higher count"
                        .into(),
                )),
                count => Ok(GenerationSpec::Keep(count)),
            };
        }
    }
    let mut numbers = BTreeSet::new();
    for text in texts {
        let is_rule = text == "old" || text.starts_with('+') || older_than_spec(text).is_some();
        match text.parse() {
            Ok(number) => numbers.insert(number),
            Err(_) if is_rule && texts.len() > 1 => {
                return Err(UsageError(
                    "cannot delete generations by several rules at once; give numbers, or one rule"
                        .into(),
                ));
            }
            Err(_) => {
                return Err(UsageError(format!(
                    "cannot delete the generations {text:?}: it is neither a number, nor old, nor \
                     a time such as 30d, nor a count to keep such as +5"
                )));
            }
        };
    }
    Ok(GenerationSpec::Numbers(numbers))
}

/// Parses a number of days.
///
/// Errors: the text is not such a number.
pub(in crate::commands) fn parse_older_than(text: &str) -> Result<GenerationSpec, UsageError> {
    older_than_spec(text).ok_or_else(|| {
        UsageError(format!(
            "cannot delete what is older than {text:?}: it is not a time of at least a day; give \
             one such as 30d"
        ))
    })
}

fn older_than_spec(text: &str) -> Option<GenerationSpec> {
    let days: u64 = text.strip_suffix('d')?.parse().ok()?;
    let time = Duration::from_secs(days.checked_mul(24 * 60 * 60)?);
    let since = SystemTime::now().checked_sub(time)?;
    (days > 0).then_some(GenerationSpec::OlderThan(since))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_specs_are_those_of_nix_env() {
        let parse = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
            parse_specs(&texts)
        };
        assert_eq!(parse(&["old"]).unwrap(), GenerationSpec::Old);
        assert_eq!(parse(&["+5"]).unwrap(), GenerationSpec::Keep(5));
        assert_eq!(
            parse(&["3", "1"]).unwrap(),
            GenerationSpec::Numbers([1, 3].into())
        );
        assert!(matches!(
            parse(&["30d"]).unwrap(),
            GenerationSpec::OlderThan(_)
        ));
        for wrong in [
            &["0d"][..],
            &["x"],
            &["1", "old"],
            &["+x"],
            &["+"],
            &["+0"],
            &["-1"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
