//! `cargo xtask test --quick`: what a developer runs after each change.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::release::output;

/// A command of floe and an end-to-end test of it that takes a few seconds.
pub(super) const TESTS: &[(&str, &str)] = &[
    ("add", "adding::paths_in_local_stores_are_those_of_nix"),
    (
        "bench",
        "bench_copy::every_run_starts_with_empty_store_and_home",
    ),
    (
        "config",
        "configuration::effects::copy_uses_configured_keys",
    ),
    ("cache", "cache::paths_are_deleted_with_their_referrers"),
    ("cat", "store_files::contents_are_those_of_nix"),
    ("copy", "copy::local_copy_requires_signatures"),
    (
        "copy_sigs",
        "copy_sigs::signatures_are_those_that_nix_copies",
    ),
    (
        "delete",
        "collect::deletion::dead_path_is_deleted_and_its_references_stay",
    ),
    (
        "demo",
        "demo::demo_runs_the_installed_program_and_removes_its_files",
    ),
    ("diff", "closure_queries::differences_are_those_of_nix"),
    ("doctor", "doctor::every_part_is_checked"),
    ("du", "closure_queries::sizes_of_closures_are_those_of_nix"),
    (
        "dump",
        "store_files::nars_are_those_of_nix_and_unpack_to_the_same_tree",
    ),
    (
        "gc",
        "collect::generations::old_generations_of_all_profiles_are_deleted_first",
    ),
    ("hash", "hashes::hashes_of_trees_and_files_are_those_of_nix"),
    (
        "info",
        "info::info_separates_records_in_order_of_command_line",
    ),
    ("install", "install::second_install_fetches_nothing"),
    (
        "key",
        "keys::key_from_floe_signs_in_nix_and_is_trusted_by_floe",
    ),
    (
        "link_names",
        "hosting::deploy_tools::names_are_linked_where_no_nix_is",
    ),
    (
        "list",
        "managed_roots::list_and_uninstall_agree_with_nix_about_sizes",
    ),
    ("log", "push::build_logs::nix_shows_logs_of_pushed_paths"),
    ("ls", "store_files::listings::listings_are_those_of_nix"),
    (
        "lock",
        "package_names::locked::locked_names_have_their_paths_and_hashes",
    ),
    (
        "manual",
        "man_pages::man_pages_exist_for_all_commands_and_groff_accepts_them",
    ),
    (
        "nix_copy_closure",
        "remote_stores::nix_copy_closure::copies_both_ways_with_each_option_of_nix",
    ),
    (
        "nix",
        "hosting::nix_paths_names::path_infos_are_those_of_nix",
    ),
    (
        "nix_store",
        "hosting::serve_protocol::real_clients_copy_both_ways",
    ),
    (
        "nix_env",
        "hosting::nix_names::profiles_are_those_of_nix_env",
    ),
    (
        "nix_collect_garbage",
        "hosting::nix_names::profiles_are_those_of_nix_env",
    ),
    (
        "nix_daemon",
        "hosting::worker_protocol::real_clients_copy_both_ways",
    ),
    (
        "nix_serve",
        "serve_options::logs::each_program_name_has_its_own_access_log_format",
    ),
    (
        "optimise",
        "collect::optimise_store::writable_and_damaged_files_are_reported",
    ),
    (
        "pin",
        "package_names::pins::pin_moves_and_an_older_one_is_refused",
    ),
    ("profile", "profiles::generations_equal_those_of_nix_env"),
    ("push", "push::closure_in_bucket_is_signed_and_complete"),
    (
        "rebuild_db",
        "rebuild_db::bare_copy_of_a_store_becomes_one_that_nix_accepts",
    ),
    (
        "restore",
        "store_files::nars_are_those_of_nix_and_unpack_to_the_same_tree",
    ),
    ("roots", "managed_roots::chains_lead_from_roots_to_the_path"),
    ("run", "running::program_is_chosen_by_name_file_or_link"),
    (
        "search",
        "package_names::lists::name_of_a_list_is_installed_for_this_machine",
    ),
    (
        "serve",
        "serve_responses::existing_resources_have_documented_headers",
    ),
    (
        "sign",
        "push::signatures::sign_adds_the_signature_of_a_new_key",
    ),
    ("tree", "closure_queries::tree_has_the_lines_of_nix"),
    (
        "uninstall",
        "managed_roots::names_of_uninstall_are_exact_or_refused",
    ),
    (
        "verify",
        "verify::modified_and_missing_paths_are_found_by_floe_and_nix",
    ),
    ("why", "why::trusted_path_in_a_cache_is_installable"),
    (
        "why_depends",
        "closure_queries::chains_to_a_dependency_are_those_of_nix",
    ),
];

/// The crates that `--quick` lints.
#[derive(Debug, PartialEq)]
pub(super) enum Linted {
    /// All: a file has changed on which all depend.
    Workspace,
    Crates(BTreeSet<String>),
}

/// Returns the crates with changes since the branch `main`; on that branch, since the last commit
/// but one.
pub(super) fn linted(root: &Path) -> Result<Linted> {
    let git = |arguments: &[&str]| output(Command::new("git").current_dir(root).args(arguments));
    let base = git(&["merge-base", "HEAD", "main"])?;
    let head = git(&["rev-parse", "HEAD"])?;
    let base = if base == head { "HEAD~1" } else { base.trim() };
    let changed = git(&["diff", "--name-only", base])?;
    let new = git(&["ls-files", "--others", "--exclude-standard"])?;
    let files = changed.lines().chain(new.lines());
    let exists = |name: &String| root.join("crates").join(name).exists() || name == "bench";
    Ok(match linted_for(files) {
        Linted::Crates(crates) => Linted::Crates(crates.into_iter().filter(exists).collect()),
        all => all,
    })
}

fn linted_for<'a>(files: impl Iterator<Item = &'a str>) -> Linted {
    let mut crates = BTreeSet::new();
    for file in files {
        if ["Cargo.toml", "Cargo.lock", "clippy.toml"].contains(&file) {
            return Linted::Workspace;
        }
        crates.extend(crate_of(file).map(str::to_owned));
    }
    Linted::Crates(crates)
}

/// Returns the crate of a file. The crates that use it are not linted again.
fn crate_of(file: &str) -> Option<&str> {
    match file.split('/').collect::<Vec<_>>()[..] {
        ["crates", name, _, ..] => Some(name),
        ["bench", _, ..] => Some("bench"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::check;

    #[test]
    fn file_belongs_to_the_crate_of_its_folder() {
        assert_eq!(crate_of("crates/floe-copy/src/lib.rs"), Some("floe-copy"));
        assert_eq!(crate_of("bench/src/main.rs"), Some("bench"));
        assert_eq!(crate_of("docs/interface.md"), None);
    }

    #[test]
    fn change_of_a_file_of_all_crates_concerns_the_workspace() {
        let linted = |files: &[&str]| linted_for(files.iter().copied());
        assert_eq!(linted(&["README.md", "Cargo.lock"]), Linted::Workspace);
        let one = Linted::Crates(BTreeSet::from(["xtask".to_owned()]));
        assert_eq!(linted(&["README.md", "crates/xtask/src/main.rs"]), one);
    }

    #[test]
    fn every_command_has_a_test_that_exists() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let folders = fs::read_dir(root.join("crates/floe-cli/src/commands")).unwrap();
        let folders = folders.map(|folder| folder.unwrap().path());
        let commands: BTreeSet<String> = folders
            .filter(|folder| folder.join("page.rs").exists())
            .map(|folder| folder.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        let tested = TESTS.iter().map(|(command, _)| (*command).to_owned());
        assert_eq!(tested.collect::<BTreeSet<String>>(), commands);
        let files = check::files(root).unwrap();
        let files = files
            .iter()
            .filter(|it| it.starts_with("crates/floe-cli/tests/it/"));
        let sources: String = files
            .map(|file| fs::read_to_string(root.join(file)).unwrap_or_default())
            .collect();
        for (_, test) in TESTS {
            let name = test.rsplit("::").next().unwrap();
            assert!(sources.contains(&format!("fn {name}()")), "{test}");
        }
    }
}
