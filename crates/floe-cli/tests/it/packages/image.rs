//! The image, read by other programs and run with chroot.

use std::fs;
use std::process::Command;

use floe_testkit::{find_tool, run, scratch};
use serde_json::Value;

use super::{full_release, in_root, may_mount, platform, release_file};

#[test]
fn image_is_read_by_other_programs_and_runs() {
    let Some(release) = full_release() else {
        return;
    };
    let (Some(skopeo), Some(umoci)) = (find_tool("skopeo", "skopeo"), find_tool("umoci", "umoci"))
    else {
        return;
    };
    if !may_mount() {
        return;
    }
    let scratch = scratch();
    let image = release_file(&release, "floe-", &format!("-{}.oci.tar", platform()));
    let name = format!("oci-archive:{}", image.display());
    let inspected = run(Command::new(&skopeo).args(["inspect", "--config", &name])).expect(0);
    let config: Value = serde_json::from_str(&inspected.stdout).unwrap();
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"][0], "/bin/floe");
    let copy = format!("oci:{}:floe", scratch.join("image").display());
    let mut convert = Command::new(&skopeo);
    run(convert.args(["--insecure-policy", "copy", &name, &copy])).expect(0);
    let bundle = scratch.join("bundle");
    let mut unpack = Command::new(umoci);
    unpack.args(["unpack", "--image"]);
    unpack.arg(format!("{}:floe", scratch.join("image").display()));
    run(unpack.arg(&bundle)).expect(0);
    let mut demo = in_root(&bundle.join("rootfs"), 65532, &["/bin/floe", "demo"]);
    let ran = run(demo.env("HOME", "/home/floe")).expect(0);
    assert!(ran.stdout.contains("verified the store"), "{}", ran.stdout);
    let size = fs::metadata(&image).unwrap().len();
    assert!(size < 20 << 20, "the image has {size} bytes");
}
