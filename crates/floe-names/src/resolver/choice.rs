//! Chooses the output of a package.

use floe_format::StorePath;
use floe_format::drv_name::name_and_version;

use super::ResolveOptions;
use crate::name_spec::NameSpec;
use crate::package::{Candidate, Unusable};

/// Returns the path of the output that the user wants, else of the one that Nix would install.
pub(super) fn choose(
    name: &NameSpec,
    candidate: &Candidate,
    options: &ResolveOptions,
) -> Result<StorePath, Unusable> {
    check_version(name, candidate)?;
    parse(output(name, candidate)?, options)
}

/// Returns the only path.
pub(super) fn path(candidate: &Candidate, options: &ResolveOptions) -> Result<StorePath, Unusable> {
    let path = candidate.outputs.values().next();
    parse(path.map_or("", String::as_str), options)
}

fn parse(path: &str, options: &ResolveOptions) -> Result<StorePath, Unusable> {
    let parsed = if path.starts_with('/') {
        options.store_dir.to_store_path(path)
    } else {
        StorePath::parse(path)
    };
    let parsed = parsed.map_err(|error| {
        let dir = &options.store_dir;
        let reason = if path.starts_with('/') && !path.starts_with(&format!("{dir}/")) {
            format!("it is not in {dir}")
        } else {
            error.reason()
        };
        Unusable(format!("its path is {path:?}: {reason}"))
    })?;
    Ok(parsed)
}

/// Checks that the package has the version that the user wants.
pub(super) fn check_version(name: &NameSpec, candidate: &Candidate) -> Result<(), Unusable> {
    let Some(wanted) = &name.version else {
        return Ok(());
    };
    let of_path = candidate.outputs.values().next();
    let of_path = of_path.and_then(|path| Some(path.rsplit('/').next()?.split_once('-')?.1));
    let nix_name = candidate.nix_name.as_deref().or(of_path);
    let version = nix_name.map_or("", |nix_name| name_and_version(nix_name).1);
    if version == wanted {
        return Ok(());
    }
    Err(Unusable(format!(
        "it has version {version:?}, not {wanted:?}"
    )))
}

fn output<'a>(name: &NameSpec, candidate: &'a Candidate) -> Result<&'a str, Unusable> {
    let outputs = &candidate.outputs;
    let find = |output: &str| outputs.get(output).map(String::as_str);
    let known = || {
        let names: Vec<&str> = outputs.keys().map(String::as_str).collect();
        names.join(", ")
    };
    match &name.output {
        Some(output) => find(output).ok_or_else(|| {
            Unusable(format!(
                "it has no output {output:?}; its outputs are {}",
                known()
            ))
        }),
        None => INSTALLED
            .into_iter()
            .find_map(find)
            .or_else(|| outputs.values().next().map(String::as_str))
            .ok_or_else(|| Unusable("it has no output with a known path".into())),
    }
}

/// The outputs that nixpkgs installs of a package, the best first (`outputsToInstall`).
const INSTALLED: [&str; 2] = ["bin", "out"];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn chosen(text: &str, outputs: &[&str]) -> Result<String, String> {
        let path = |output: &str| format!("/nix/store/{}-{output}-1.2", "0".repeat(32));
        let candidate = Candidate {
            outputs: outputs
                .iter()
                .map(|output| ((*output).to_owned(), path(output)))
                .collect(),
            nix_name: Some("jq-1.7.1".into()),
            ..Candidate::default()
        };
        let options = ResolveOptions {
            store_dir: Default::default(),
            ttl: Duration::ZERO,
            compares: false,
            pins: Default::default(),
            caches: String::new(),
        };
        let chosen = choose(&NameSpec::parse(text).unwrap(), &candidate, &options);
        chosen
            .map(|path| path.name().to_owned())
            .map_err(|error| error.0)
    }

    #[test]
    fn output_is_the_named_one_else_the_programs() {
        let all = ["bin", "dev", "man", "out"];
        assert_eq!(chosen("jq", &all).unwrap(), "bin-1.2");
        assert_eq!(chosen("jq", &["dev", "out"]).unwrap(), "out-1.2");
        assert_eq!(chosen("jq", &["lib"]).unwrap(), "lib-1.2");
        assert_eq!(chosen("jq.man", &all).unwrap(), "man-1.2");
        assert_eq!(chosen("jq^dev@1.7.1", &all).unwrap(), "dev-1.2");
        let error = chosen("jq.doc", &all).unwrap_err();
        assert!(
            error.ends_with("its outputs are bin, dev, man, out"),
            "{error}"
        );
        let error = chosen("jq@1.6", &all).unwrap_err();
        assert_eq!(error, "it has version \"1.7.1\", not \"1.6\"");
        assert!(chosen("jq", &[]).unwrap_err().contains("no output"));
    }
}
