//! An image of the static binary in the layout of the Open Container Initiative, without a
//! container engine.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Release;
use super::archive::{Archive, gzip};
use super::files::Files;
use super::sums::sha256;

impl Release {
    /// Makes `floe-VERSION-PLATFORM.oci.tar`. In the image, floe runs as a user without rights.
    pub(super) fn make_image(&self, files: &Files) -> Result<PathBuf> {
        let tar = root_directory(&self.root, files)?.tar(self.time)?;
        let layer = gzip(&tar)?;
        let config = self.image_config(files, &tar)?.to_string();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("config.v1+json", config.as_bytes()),
            "layers": [descriptor("layer.v1.tar+gzip", &layer)],
        })
        .to_string();
        let mut entry = descriptor("manifest.v1+json", manifest.as_bytes());
        entry["platform"] = json!({ "architecture": files.target.debian, "os": "linux" });
        // Engines use this name if the user gives none.
        let name = format!("floe:{}", self.version);
        entry["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [entry],
        });
        let mut image = Archive::default();
        image.file("oci-layout", 0o644, r#"{"imageLayoutVersion":"1.0.0"}"#);
        image.file("index.json", 0o644, index.to_string());
        for blob in [layer, config.into_bytes(), manifest.into_bytes()] {
            image.file(&format!("blobs/sha256/{}", sha256(&blob)), 0o644, blob);
        }
        let name = format!("floe-{}-{}.oci.tar", self.version, files.target.platform());
        self.write(&name, &image.tar(self.time)?)
    }

    /// The configuration of the image with one layer, whose uncompressed archive is `tar`.
    fn image_config(&self, files: &Files, tar: &[u8]) -> Result<Value> {
        let seconds = i64::try_from(self.time).context("the time of the commit")?;
        let created = Timestamp::from_second(seconds).context("the time of the commit")?;
        Ok(json!({
            "created": created.to_string(),
            "architecture": files.target.debian,
            "os": "linux",
            "config": {
                "User": format!("{USER}:{USER}"),
                "Env": ["PATH=/bin", "HOME=/home/floe"],
                "Entrypoint": ["/bin/floe"],
                "WorkingDir": "/home/floe",
                "Labels": {
                    "org.opencontainers.image.title": "floe",
                    "org.opencontainers.image.version": self.version,
                    "org.opencontainers.image.revision": self.commit,
                    "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
                },
            },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", sha256(tar))] },
            "history": [{ "created": created.to_string(), "created_by": "cargo xtask dist" }],
        }))
    }
}

/// The root directory of the image.
fn root_directory(repository: &Path, files: &Files) -> Result<Archive> {
    let mut root = Archive::default();
    root.copy("bin/floe", 0o755, &files.floe)?;
    let user = format!("root:x:0:0::/:/bin/floe\nfloe:x:{USER}:{USER}::/home/floe:/bin/floe\n");
    root.file("etc/passwd", 0o644, user);
    root.file("etc/group", 0o644, format!("root:x:0:\nfloe:x:{USER}:\n"));
    root.file("THIRD-PARTY", 0o644, &*files.notices);
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        root.copy(name, 0o644, &repository.join(name))?;
    }
    root.directory("home/floe", 0o755, USER);
    root.directory("tmp", 0o1777, 0);
    Ok(root)
}

/// Describes a part of the image.
fn descriptor(kind: &str, contents: &[u8]) -> Value {
    json!({
        "mediaType": format!("application/vnd.oci.image.{kind}"),
        "digest": format!("sha256:{}", sha256(contents)),
        "size": contents.len(),
    })
}

/// The user and group in the image, which other images without a root user have too.
const USER: u64 = 65532;
