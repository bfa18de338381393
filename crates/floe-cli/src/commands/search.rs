//! `floe search`: finds packages in the name sources that can list them.

pub(crate) mod args;
pub(crate) mod page;

use anyhow::bail;
use floe_names::{FoundPackage, FoundPackages};
use serde_json::{Value, json};

use crate::display::{eprint_error, warn};
use crate::exit::UsageError;
use crate::messages::{counted, escaped};
use crate::options::Settings;
use crate::package_names::{PackageNames, ago};
use crate::stdout::print;
use args::SearchArgs;

pub(crate) fn run(args: &SearchArgs) -> anyhow::Result<()> {
    let settings = Settings::load(&args.options, None)?;
    let packages = PackageNames::new(&settings, &args.names, (None, args.refresh))?;
    if args.check_sources {
        return check_sources(args, &packages);
    }
    let FoundPackages {
        packages: found,
        searched,
        offline,
    } = packages.search(&args.words)?;
    if searched.is_empty() {
        bail!(UsageError(NO_LIST.into()));
    }
    for (source, asked_at, why) in offline {
        warn(format_args!(
            "using the list {source} of {}: {why}",
            ago(asked_at)
        ));
    }
    if args.json {
        let packages: Vec<Value> = found.iter().map(to_json).collect();
        return print(json!({ "packages": packages }));
    }
    if found.is_empty() {
        bail!(
            "cannot find a package with {} in its name: {} has none",
            args.words.join(" and "),
            searched.join(" and ")
        );
    }
    print(table(&found).trim_end())
}

/// Returns a line for each package, with aligned columns.
fn table(packages: &[FoundPackage]) -> String {
    let width = |column: fn(&FoundPackage) -> &str| {
        let lens = packages.iter().map(|package| column(package).len());
        lens.max().unwrap_or_default()
    };
    let (name_width, version_width) = (width(|it| &it.name), width(|it| &it.version));
    let lines = packages.iter().map(|package| {
        let outputs: Vec<&str> = package.outputs.keys().map(String::as_str).collect();
        let line = format!(
            "{:name_width$}  {:version_width$}  {}  ({})",
            package.name,
            package.version,
            package.alias.as_ref().unwrap_or(&package.source),
            outputs.join(", ")
        );
        escaped(line) + "\n"
    });
    lines.collect()
}

fn to_json(package: &FoundPackage) -> Value {
    json!({
        "name": package.name,
        "version": package.version,
        "outputs": package.outputs,
        "source": package.source,
    })
}

/// Asks each source, and prints what it replies.
///
/// Errors: a source does not reply as its kind does.
fn check_sources(args: &SearchArgs, packages: &PackageNames<'_>) -> anyhow::Result<()> {
    let name = args.words.first().map_or("hello", String::as_str);
    let results = packages.check_sources(name);
    let mut failed = 0;
    let mut objects = Vec::new();
    for (source, result) in results {
        let (reply, error) = match result {
            Ok(reply) => (Some(reply), None),
            Err(error) => (None, Some(error.to_string())),
        };
        failed += usize::from(error.is_some());
        match (&reply, &error) {
            _ if args.json => {}
            (Some(reply), _) => print(escaped(format!("{source}: {reply}")))?,
            (None, error) => eprint_error(error.as_deref().unwrap_or_default()),
        }
        objects.push(json!({ "source": source, "reply": reply, "error": error }));
    }
    if args.json {
        print(json!({ "sources": objects }))?;
    }
    match failed {
        0 if objects.is_empty() => bail!(UsageError(NO_SOURCE.into())),
        0 => Ok(()),
        failed => bail!(
            "cannot use {} of {}",
            failed,
            counted(objects.len(), "name source")
        ),
    }
}

const NO_LIST: &str = "cannot search: no name source has a list of its packages; add one with \
                       --names or the setting names, such as \
                       list+https://channels.nixos.org/nixos-unstable/store-paths.xz";

const NO_SOURCE: &str = "cannot check name sources: there is none; add one with --names or the \
                         setting names";
