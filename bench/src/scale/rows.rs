//! The rows: the command, the number of paths, and the aims of floe.

use crate::aims::{Aim, NO_RIVAL};
use crate::args::ScaleArgs;
use crate::synthetic_store::Files;
use crate::synthetic_store::shape::{References, Shape};

/// The name of Nix as a variant.
pub(super) const NIX: &str = "nix";

/// The work of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    GcDryRun,
    /// A collection that deletes all dead paths.
    Gc,
    List,
    /// `list --all` of a store in which most closures are large.
    ListAllDense,
    Roots,
    InfoAll,
    InfoAllJson,
    /// From the start of `floe serve` to the first narinfo.
    ServeStart,
    /// The plan of a copy of all paths into an empty store.
    CopyPlan,
    /// A push of a path whose references the cache has.
    PushOne,
}

/// A row before it is measured.
pub(super) struct RowPlan {
    pub(super) name: String,
    pub(super) aim: Aim,
    pub(super) task: Task,
    pub(super) shape: Shape,
    pub(super) files: Files,
}

/// All rows in the order of the table.
pub(super) fn all(args: &ScaleArgs) -> Vec<RowPlan> {
    let of_size = |paths: usize| {
        let files = if args.files || paths <= MOST_PATHS_WITH_FILES {
            Files::All
        } else {
            Files::FirstRoot
        };
        let tasks = TASKS.into_iter();
        tasks.filter_map(move |task| plan(task, paths, files))
    };
    args.sizes().iter().copied().flat_map(of_size).collect()
}

const TASKS: [Task; 10] = [
    Task::GcDryRun,
    Task::Gc,
    Task::List,
    Task::Roots,
    Task::InfoAll,
    Task::InfoAllJson,
    Task::ServeStart,
    Task::CopyPlan,
    Task::PushOne,
    // The last one, because it has a store of its own.
    Task::ListAllDense,
];

/// Returns a row; `None` if a store of this size does not have it.
fn plan(task: Task, paths: usize, files: Files) -> Option<RowPlan> {
    let is_whole = files == Files::All;
    let references = match task {
        Task::ListAllDense if paths > MOST_DENSE_PATHS => return None,
        Task::ListAllDense => References::Dense,
        // Without files, only rows are deleted.
        Task::Gc if !is_whole => return None,
        _ => References::Common,
    };
    let shape = Shape { paths, references };
    let work = match task {
        Task::GcDryRun => "gc --dry-run",
        Task::Gc => &format!("gc of {}", thousands(shape.dead())),
        Task::List => "list",
        Task::ListAllDense => "dense, list --all",
        Task::Roots => "roots",
        Task::InfoAll => "info --all",
        Task::InfoAllJson => "info --all --json",
        Task::ServeStart => "first narinfo of serve",
        Task::CopyPlan => "copy --all --dry-run",
        Task::PushOne => "push of one new path",
    };
    Some(RowPlan {
        name: format!("{} paths, {work}", thousands(paths)),
        aim: aim(task, paths, is_whole),
        task,
        shape,
        files: if references == References::Dense {
            Files::FirstRoot
        } else {
            files
        },
    })
}

fn aim(task: Task, paths: usize, is_whole: bool) -> Aim {
    let rival = match task {
        Task::Gc | Task::Roots | Task::InfoAllJson | Task::PushOne => NIX,
        // Nix lists the files of the store directory.
        Task::GcDryRun if is_whole => NIX,
        _ => NO_RIVAL,
    };
    let aim = Aim::none(rival);
    match (task, paths) {
        (Task::Gc, 100_000) | (Task::GcDryRun, 1_000_000) => aim.seconds(3.0),
        (Task::List | Task::Roots, 1_000_000) => aim.seconds(6.0).megabytes(400.0),
        (Task::InfoAll, 1_000_000) => aim.megabytes(100.0),
        (Task::ListAllDense, 100_000) => aim.seconds(10.0),
        _ => aim,
    }
}

/// A number with a comma before each three digits.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// With two inodes and a page for each path, a larger store would fill the memory of many machines.
const MOST_PATHS_WITH_FILES: usize = 200_000;

/// The sizes of all closures need time and memory by the square of the number of paths.
const MOST_DENSE_PATHS: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_unique_names_and_fit_the_size() {
        let args = ScaleArgs {
            paths: vec![100_000, 1_000_000],
            ..ScaleArgs::default()
        };
        let plans = all(&args);
        let names: std::collections::BTreeSet<&str> =
            plans.iter().map(|plan| &*plan.name).collect();
        assert_eq!(names.len(), plans.len());
        assert!(names.contains("100,000 paths, gc of 30,000"), "{names:?}");
        assert!(names.contains("1,000,000 paths, gc --dry-run"), "{names:?}");
        assert!(!names.contains("1,000,000 paths, gc of 300,000"));
        let aims = plans.iter().map(|plan| plan.aim);
        let limited = aims.filter(|aim| aim.seconds.or(aim.megabytes).is_some());
        assert_eq!(limited.count(), 6);
    }

    #[test]
    fn thousands_are_separated() {
        for (number, text) in [(7, "7"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(number), text);
        }
    }
}
