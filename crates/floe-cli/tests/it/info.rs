//! `floe info`: the metadata of paths in a store or cache.

use floe_testkit::{corpus, run};

use crate::support::floe;

#[test]
fn info_separates_records_in_order_of_command_line() {
    let Some(corpus) = corpus("jq") else { return };
    let store = corpus.store().display().to_string();
    let mut paths = corpus.paths.clone();
    paths.sort();
    paths.reverse();
    for from in [corpus.file_url("zstd"), store] {
        for recursive in [None, Some("-r")] {
            let mut command = floe(["info", "--from", &from]);
            let text = run(command.args(&paths).args(recursive)).expect(0).stdout;
            assert!(
                text.ends_with('\n') && !text.ends_with("\n\n"),
                "{from}: {text}"
            );
            let records: Vec<&str> = text.split("\n\n").collect();
            assert_eq!(records.len(), paths.len(), "{from}: {text}");
            for (record, path) in records.iter().zip(&paths) {
                assert!(
                    record.starts_with(&format!("StorePath: {path}\n")),
                    "{record}"
                );
            }
        }
    }
}

#[test]
fn absent_path_hides_no_other_path() {
    let Some(corpus) = corpus("jq") else { return };
    let absent = ["1", "2"].map(|digit| format!("/nix/store/{}-absent", digit.repeat(32)));
    for from in [
        corpus.file_url("zstd"),
        corpus.store().display().to_string(),
    ] {
        for json in [None, Some("--json")] {
            let mut command = floe(["info", "--from", &from]);
            command.args(json).arg(&absent[1]).arg(&corpus.root);
            let ran = run(command.arg(&absent[0])).expect(1);
            assert!(ran.stdout.contains(&corpus.root), "{from}: {}", ran.stdout);
            for absent in &absent {
                let name = absent.strip_prefix("/nix/store/").unwrap();
                assert_eq!(
                    ran.stderr.matches(name).count(),
                    1,
                    "{from}: {}",
                    ran.stderr
                );
            }
        }
    }
}
