//! `floe serve --receive` as the place of uploads.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::super::fixture::Fixture;
use super::super::link::Link;
use super::super::servers::{Running, start_at};

/// Starts a server that receives into a cache, at the server's end of a link.
pub(super) fn start(
    fixture: &Fixture,
    (link, (address, port)): (&Link, (Ipv4Addr, u16)),
    (cache, scratch): (&Path, &Path),
) -> Result<Running> {
    let floe = &fixture.floe()?.path;
    let run = |args: &[&str]| -> Result<String> {
        let output = fixture.settings.command(floe.clone()).args(args).output();
        let output = output.context("cannot run floe")?;
        ensure!(output.status.success(), "floe {args:?} failed");
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    let text = |path: PathBuf| path.display().to_string();
    let (root, logins) = (text(scratch.join("root")), text(scratch.join("logins")));
    let file = scratch.join("file");
    fs::write(&file, "contents").context("cannot write a file")?;
    run(&["add", "--to", &root, &text(file)])?;
    let token = run(&[
        "serve",
        "auth",
        "add-token",
        "--auth-file",
        &logins,
        "--scope",
        "read,push",
        "bench",
    ])?;
    let netrc = format!("machine {address} login any password {token}\n");
    fs::write(netrc_file(scratch), netrc).context("cannot write the netrc file")?;
    let mut command = link.server_command(&floe.display().to_string())?;
    command
        .args([
            "serve",
            "--listen",
            &format!("{address}:{port}"),
            "--store",
            &root,
        ])
        .args(["--auth-file", &logins, "--receive"])
        .arg(cache);
    start_at(command, (address, port))
}

/// The arguments of a client that make it use the login.
pub(super) fn login(scratch: &Path) -> Vec<String> {
    let file = netrc_file(scratch).display().to_string();
    ["--option", "netrc-file", &file]
        .map(str::to_owned)
        .to_vec()
}

fn netrc_file(scratch: &Path) -> PathBuf {
    scratch.join("netrc")
}
