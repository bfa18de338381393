//! `floe push`: copies closures of the local store into a binary cache, compressed and signed.

pub(crate) mod args;
pub(crate) mod page;

use std::path::PathBuf;

use anyhow::bail;
use floe_config::{StoreAccess, StoreChoice, StoreFlags, build_log_dir};
use floe_copy::CopyRequest;
use floe_store::StoreLayout;

use crate::copying::{CopyAction, Copying, Follow};
use crate::exit::UsageError;
use crate::messages::copy::{FOLLOWS_NOTHING, NO_PUSH_TARGET, not_a_cache, not_watchable};
use crate::options::{Settings, environment};
use args::PushArgs;

pub(crate) fn run(args: &PushArgs) -> anyhow::Result<()> {
    let settings = Settings::load(&args.options, args.store_dir.as_deref())?;
    let path_args = args.paths();
    if args.follow && !path_args.use_stdin() {
        bail!(UsageError(FOLLOWS_NOTHING.into()));
    }
    let source = settings.store(args.local.choice(), StoreAccess::Read)?;
    let target = target_uri(args, &settings)?;
    let target = settings.store(StoreChoice::Uri(&target), StoreAccess::Read)?;
    if target.layout().is_some() {
        bail!(UsageError(not_a_cache(&target)));
    }
    let follow = match (args.follow, args.watch_store, source.layout()) {
        (true, ..) => Follow::Stdin,
        (false, true, Some(layout)) => Follow::Store(layout.clone()),
        (false, true, None) => bail!(UsageError(not_watchable(&source))),
        (false, false, _) => Follow::No,
    };
    let paths = follow.first_paths(&path_args, &settings, &[&*source])?;
    let transfer = args.transfer();
    let command = Copying {
        action: CopyAction::Push,
        settings: &settings,
        args: &transfer,
        follow: &follow,
        is_result: true,
    };
    let build_logs = match source.layout().filter(|_| args.build_logs) {
        Some(layout) => Some(log_dir(args, &settings, layout)?),
        None => None,
    };
    let upstreams = args.skip_upstream.iter();
    let upstreams = upstreams.map(|uri| settings.store(StoreChoice::Uri(uri), StoreAccess::Read));
    let request = CopyRequest {
        build_logs,
        upstreams: upstreams.collect::<anyhow::Result<_>>()?,
        // The user has named none of them.
        may_skip_requested: args.watch_store || path_args.all,
        ..CopyRequest::new(vec![source], target, paths)
    };
    command.run(request)
}

/// Returns the directory with the build logs of the store.
fn log_dir(args: &PushArgs, settings: &Settings, layout: &StoreLayout) -> anyhow::Result<PathBuf> {
    let configured = settings.config.store.get();
    let flags = StoreFlags {
        root: args.local.root.as_deref(),
        store: Some(args.local.store.as_deref().unwrap_or(configured)),
        store_dir: args.store_dir.as_deref(),
    };
    Ok(build_log_dir(layout, &flags, &environment())?)
}

/// Returns the URI of the cache, with the compression and the keys that it does not name itself.
fn target_uri(args: &PushArgs, settings: &Settings) -> anyhow::Result<String> {
    let config = &settings.config;
    let named = args.to.as_deref();
    let mut uri = named.unwrap_or(config.push_to.get()).to_owned();
    if uri.is_empty() {
        bail!(UsageError(NO_PUSH_TARGET.into()));
    }
    let has = |uri: &str, name: &str| {
        let query = uri.split_once('?').map_or("", |(_, query)| query);
        query
            .split('&')
            .any(|part| part.split('=').next() == Some(name))
    };
    if !has(&uri, "compression") {
        add_parameter(&mut uri, "compression", "zstd");
    }
    let has_keys = has(&uri, "secret-key") || has(&uri, "secret-keys");
    let keys: &[PathBuf] = match args.secret_key_file.is_empty() {
        false => &args.secret_key_file,
        true if has_keys => &[],
        true => &config.secret_key_files.get().0,
    };
    for key in keys {
        let key = std::path::absolute(key)?;
        let Some(key) = key.to_str() else {
            bail!(UsageError(crate::messages::copy::key_not_utf8(&key)));
        };
        add_parameter(&mut uri, "secret-key", key);
    }
    Ok(uri)
}

/// Appends a parameter to a URI.
fn add_parameter(uri: &mut String, name: &str, value: &str) {
    let separator = if uri.contains('?') { '&' } else { '?' };
    let value = percent_encoding::utf8_percent_encode(value, percent_encoding::NON_ALPHANUMERIC);
    uri.push_str(&format!("{separator}{name}={value}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_appended_in_their_encoding() {
        let mut uri = String::from("s3://team");
        add_parameter(&mut uri, "compression", "zstd");
        add_parameter(&mut uri, "secret-key", "/a b&c");
        assert_eq!(uri, "s3://team?compression=zstd&secret-key=%2Fa%20b%26c");
    }
}
