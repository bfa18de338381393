//! The committed corpora of the fuzz targets have the properties of the targets.

use floe_testkit::fuzz_corpus::check_files;

#[allow(unreachable_pub, reason = "the fuzz target includes the file too")]
#[path = "../../../fuzz/src/codec.rs"]
mod fuzz;

#[test]
fn contents_do_not_depend_on_cores_and_pieces() {
    check_files("zstd_frames", fuzz::check_zstd_frames);
}
