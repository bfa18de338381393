//! `floe serve --check`: tests the settings, and prints what the server would serve.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use floe_config::{AccessLogFormat, ServeSettings};
use floe_server::{Compress, Config, Server};
use httpdate::fmt_http_date;
use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::messages;
use super::receive_options::ReceivePlace;
use crate::stdout::print;

/// Opens the store, reads the keys and listens, as the server does. For the files of the server,
/// only tests whether it could create and write them.
pub(super) fn run(settings: &ServeSettings, mut config: Config) -> anyhow::Result<()> {
    let database = config.store.database_dir().join("db.sqlite");
    let mut lines = vec![
        format!("store {}", config.store.store_dir.as_str()),
        format!("files {}", config.store.real_store_dir.display()),
        format!("database {}", database.display()),
        format!("logs {}", config.log_dir.display()),
        format!("priority {}", config.priority),
    ];
    let public = |key: &floe_format::SecretKey| format!("key {}", key.public());
    lines.extend(config.secret_keys.iter().map(public));
    let auth_file = config.auth_file.as_ref();
    lines.extend(auth_file.map(|file| format!("auth-file {}", file.display())));
    let cache = config.compressed_cache.take();
    let dir = cache.as_ref().map_or(Path::new(""), |cache| &cache.dir);
    lines.push(match config.compress {
        Compress::Off => "compress off".into(),
        Compress::Always if cache.is_none() => "compress always".into(),
        Compress::Always => format!("compress always {}", dir.display()),
        Compress::Cached => format!("compress cached {}", dir.display()),
    });
    if cache.is_some() {
        check_dir(dir).with_context(|| messages::compressed_cache(dir))?;
    }
    if let Some(place) = ReceivePlace::of(settings) {
        let dir = place.directory();
        check_dir(dir).with_context(|| messages::uploads(dir))?;
        lines.push(format!("{} {}", place.setting(), dir.display()));
    }
    let is_quiet = settings.access_log_format.value() == Some(&AccessLogFormat::Quiet);
    let log = settings.access_log.value().map(PathBuf::as_path);
    let log = log.filter(|_| !is_quiet);
    if let Some(file) = log.filter(|file| *file != Path::new("-")) {
        check_file(file).with_context(|| messages::log_file("access log", file))?;
    }
    if let Some(tls) = &mut config.tls {
        tls.accepts_invalid_now = false;
    }
    // A server with a cache of compressed NARs would create the directory and tidy it up.
    config.compress = Compress::Off;
    let server = Server::bind(config)?;
    let date = server.certificate_expiry().map(fmt_http_date);
    lines.extend(date.map(|date| format!("certificate valid until {date}")));
    let urls = server.urls().into_iter();
    lines.extend(urls.map(|url| format!("listen {url}")));
    let urls = server.redirect_urls().into_iter();
    lines.extend(urls.map(|url| format!("redirect-listen {url}")));
    let urls = server.metrics_urls().into_iter();
    lines.extend(urls.map(|url| format!("metrics-listen {url}")));
    lines.iter().try_for_each(print)
}

/// Checks whether this process may write to a directory, or could create it with its parents.
fn check_dir(dir: &Path) -> io::Result<()> {
    for dir in dir.ancestors() {
        let dir = or_current(dir);
        match fs::metadata(dir) {
            Ok(metadata) if metadata.is_dir() => return may_write(dir, Access::EXEC_OK),
            Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
            // No directory can be created in the place of a dangling link.
            Err(error) if error.kind() != io::ErrorKind::NotFound || dir.is_symlink() => {
                return Err(error);
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// Checks whether this process may write to a file, or could create it.
fn check_file(file: &Path) -> io::Result<()> {
    match fs::metadata(file) {
        Ok(metadata) if metadata.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => may_write(file, Access::empty()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let dir = or_current(file.parent().unwrap_or(Path::new("")));
            may_write(dir, Access::EXEC_OK)
        }
        Err(error) => Err(error),
    }
}

fn may_write(path: &Path, further: Access) -> io::Result<()> {
    Ok(accessat(
        CWD,
        path,
        Access::WRITE_OK | further,
        AtFlags::EACCESS,
    )?)
}

/// Returns the current directory for an empty path, which stands before a relative one.
fn or_current(dir: &Path) -> &Path {
    if dir.as_os_str().is_empty() {
        Path::new(".")
    } else {
        dir
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_that_could_be_created_passes_and_stays_absent() {
        let scratch = tempfile::tempdir().unwrap();
        let (file, link) = (scratch.path().join("file"), scratch.path().join("link"));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        check_dir(scratch.path()).unwrap();
        check_dir(&scratch.path().join("a/b/c")).unwrap();
        check_dir(Path::new("no/such/directory")).unwrap();
        assert!(!scratch.path().join("a").exists());
        let kind = |dir: &Path| check_dir(dir).unwrap_err().kind();
        assert_eq!(kind(&file), io::ErrorKind::NotADirectory);
        assert_eq!(kind(&file.join("a")), io::ErrorKind::NotADirectory);
        assert_eq!(kind(&link.join("a")), io::ErrorKind::NotFound);
        check_dir(Path::new("/proc/1/a")).unwrap_err();
    }

    #[test]
    fn file_needs_a_directory_to_be_created_in() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("log");
        check_file(&file).unwrap();
        assert!(!file.exists());
        check_file(Path::new("log")).unwrap();
        check_file(&file.join("log")).unwrap_err();
        check_file(scratch.path()).unwrap_err();
        fs::write(&file, "").unwrap();
        check_file(&file).unwrap();
    }
}
