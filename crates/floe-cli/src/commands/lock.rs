//! `floe lock`: prints a lock file.

pub(crate) mod args;
pub(crate) mod page;

use floe_config::{StoreAccess, StoreChoice};
use floe_copy::RequestedPaths;
use floe_names::NameSpec;

use crate::options::Settings;
use crate::package_names::PackageNames;
use crate::stdout::print;
use args::LockArgs;

pub(crate) fn run(args: &LockArgs) -> anyhow::Result<()> {
    let settings = Settings::load(&args.options, None)?;
    let specs = args.packages.iter().map(|name| NameSpec::parse(name));
    let specs: Vec<NameSpec> = specs.collect::<Result<_, _>>()?;
    let mut packages = PackageNames::new(&settings, &args.names, (None, args.refresh))?;
    packages.set_keys(settings.trusted_keys(&args.trust)?);
    if !args.from.is_empty() {
        let target = settings.store(StoreChoice::of_flags(None, None), StoreAccess::Read)?;
        let request = settings.copy_from(&args.from, target, RequestedPaths::All)?;
        packages.set_caches(&request.sources);
    }
    print(packages.lock(&specs)?.to_text().trim_end())
}
