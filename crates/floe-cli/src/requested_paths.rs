//! The paths that a command asks a store or cache for.

use floe_store::StoreLayout;
use floe_transfer::{Cancel, Error, PathSpec, Source};

use crate::args::PathArgs;
use crate::links::StoreNames;
use crate::package_names::lock::check_source;
use crate::package_names::{First, PackageNames};
use crate::path_names;

/// Returns the requested paths. `layout` is that of a local store.
pub(crate) fn requested(
    args: &PathArgs,
    (source, layout): (&dyn Source, Option<&StoreLayout>),
    packages: Option<&mut PackageNames<'_>>,
) -> anyhow::Result<Vec<PathSpec>> {
    if args.all {
        let source_name = source.name();
        let all = source.query_all_valid_paths()?;
        let all = all.ok_or(Error::Unlistable { source_name })?;
        return Ok(all.into_iter().map(PathSpec::Path).collect());
    }
    let store_dir = source.store_dir();
    let (arguments, packages) = (args.read()?, packages.filter(|it| it.are_enabled()));
    let texts = match (layout, packages) {
        (Some(layout), Some(packages)) => {
            let texts = path_names::follow_links(layout, &arguments)?;
            packages
                .find((&arguments, texts), (layout, First::Store))?
                .texts
        }
        (Some(layout), None) => path_names::follow(layout, &arguments)?,
        (None, packages) => {
            let names = StoreNames {
                store_dir: store_dir.clone(),
                real_store_dir: None,
            };
            let texts = path_names::as_files(names.follow(&arguments));
            match packages {
                Some(packages) => {
                    let found = packages.resolve(&arguments, texts)?;
                    check_source(source, &found.names, &Cancel::default())?;
                    found.texts
                }
                None => texts,
            }
        }
    };
    let specs = texts.iter().map(|text| PathSpec::parse(text, store_dir));
    Ok(specs.collect::<Result<_, _>>()?)
}
