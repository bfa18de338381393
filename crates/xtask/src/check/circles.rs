//! Forbids circles between the top-level modules of a crate.
//!
//! A module depends on another if its code names it, by `crate::` or by enough `super::`. A name
//! that the root module re-exports counts as a name of the module that it comes from. Tests and the
//! root module itself are left out: they may name everything.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Fault;
use super::code::{Piece, tokens, without_tests};

/// The sources of one crate, by their path below `src/`.
type Sources<'a> = BTreeMap<&'a str, &'a str>;

/// For each module, the modules that it names.
type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// `files` holds the path and the text of every source of the repository.
pub(super) fn faults(files: &[(String, String)]) -> Vec<Fault> {
    let mut crates: BTreeMap<&str, Sources<'_>> = BTreeMap::new();
    for (file, text) in files {
        let Some((name, inner)) = file.split_once("/src/") else {
            continue;
        };
        if name == "bench" || name.starts_with("crates/") {
            crates.entry(name).or_default().insert(inner, text);
        }
    }
    let faults = crates.iter().filter_map(|(name, sources)| {
        let circle = circle(&graph(sources))?;
        let why = format!("modules in a circle: {}", circle.join(" → "));
        Some(Fault::new(&format!("{name}/src"), 0, "circles", &why))
    });
    faults.collect()
}

fn graph<'a>(sources: &Sources<'a>) -> Graph<'a> {
    let reexports = reexports(sources);
    let mut graph = Graph::new();
    for (&file, &text) in sources {
        let Some(path) = module_path(file) else {
            continue;
        };
        let code = without_tests(&tokens(text));
        let named = named_by(&code, path.len());
        let modules = named
            .into_iter()
            .filter_map(|name| match is_module(sources, name) {
                true => Some(name),
                false => reexports.get(name).copied(),
            })
            .filter(|module| *module != path[0]);
        graph.entry(path[0]).or_default().extend(modules);
    }
    graph
}

/// The module that a file holds, from the root; nothing for the root itself and for tests.
fn module_path(file: &str) -> Option<Vec<&str>> {
    let parts: Vec<&str> = file.strip_suffix(".rs")?.split('/').collect();
    let is_root = matches!(parts[..], ["lib" | "main"]) || parts[0] == "bin";
    let is_test = parts.contains(&"tests");
    (!is_root && !is_test).then_some(parts)
}

fn is_module(sources: &Sources<'_>, name: &str) -> bool {
    sources
        .keys()
        .filter_map(|file| module_path(file))
        .any(|path| path[0] == name)
}

/// The names that the root module re-exports, and the module that each comes from.
fn reexports<'a>(sources: &Sources<'a>) -> BTreeMap<&'a str, &'a str> {
    let mut found = BTreeMap::new();
    for root in ["lib.rs", "main.rs"]
        .iter()
        .filter_map(|file| sources.get(file))
    {
        let code = tokens(root);
        for (at, _) in code
            .iter()
            .enumerate()
            .filter(|(_, piece)| piece.text == "use")
        {
            let Some(module) = code.get(at + 1).map(|piece| piece.text) else {
                continue;
            };
            let names = code[at + 2..].iter().map(|piece| piece.text);
            let names = names
                .take_while(|text| *text != ";")
                .filter(|text| is_name(text));
            found.extend(names.map(|name| (name, module)));
        }
    }
    found
}

/// The top-level names that code uses, as seen from a module at a depth below the root.
fn named_by<'a>(code: &[Piece<'a>], depth: usize) -> BTreeSet<&'a str> {
    let text = |at: usize| code.get(at).map_or("", |piece| piece.text);
    let mut found = BTreeSet::new();
    for at in 0..code.len() {
        // Every chain of `super` is looked at once, from its first link.
        let is_inner = at >= 2 && text(at - 1) == "::" && text(at - 2) == "super";
        let mut next = at;
        while text(next) == "super" && text(next + 1) == "::" && !is_inner {
            next += 2;
        }
        let is_from_root =
            text(at) == "crate" && text(at + 1) == "::" && text(at.wrapping_sub(1)) != "(";
        if is_from_root {
            next = at + 2;
        } else if next == at || (next - at) / 2 != depth {
            continue;
        }
        found.extend(heads(code, next));
    }
    found
}

/// The name at a place, or the first names of a group `{a, b::{c}, d}` there.
fn heads<'a>(code: &[Piece<'a>], at: usize) -> Vec<&'a str> {
    let Some(first) = code.get(at) else {
        return Vec::new();
    };
    if first.text != "{" {
        return vec![first.text];
    }
    let mut found = Vec::new();
    let mut depth = 0;
    for pair in code[at..].windows(2) {
        depth += match pair[0].text {
            "{" => 1,
            "}" => -1,
            _ => 0,
        };
        if depth == 0 {
            break;
        }
        if depth == 1 && matches!(pair[0].text, "{" | ",") && is_name(pair[1].text) {
            found.push(pair[1].text);
        }
    }
    found
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// A shortest circle, with its first module repeated at its end.
fn circle<'a>(graph: &Graph<'a>) -> Option<Vec<&'a str>> {
    let circles = graph.keys().filter_map(|start| way_back(graph, start));
    circles.min_by_key(Vec::len)
}

/// A shortest way from a module to itself.
fn way_back<'a>(graph: &Graph<'a>, start: &'a str) -> Option<Vec<&'a str>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(module) = queue.pop_front() {
        for &next in graph.get(module).into_iter().flatten() {
            if next == start {
                let mut way = vec![start, module];
                while let Some(&previous) = before.get(way[way.len() - 1]) {
                    way.push(previous);
                }
                way.reverse();
                if way[0] != start {
                    way.insert(0, start);
                }
                return Some(way);
            }
            if let std::collections::btree_map::Entry::Vacant(entry) = before.entry(next) {
                entry.insert(module);
                queue.push_back(next);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files
            .iter()
            .map(|(file, text)| (format!("crates/x/src/{file}"), text.to_string()))
            .collect();
        faults(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn circle_of_two_modules_is_a_fault() {
        let found = messages(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::{io, a::{A, b}};"),
        ]);
        assert_eq!(
            found,
            ["crates/x/src: circles: modules in a circle: a → b → a"]
        );
    }

    #[test]
    fn circle_through_super_and_reexport_is_a_fault() {
        let found = messages(&[
            ("lib.rs", "pub use b::{B, C};"),
            ("a/inner.rs", "use crate::C;"),
            ("b/deep.rs", "fn f() { super::super::a::g() }"),
        ]);
        assert_eq!(
            found,
            ["crates/x/src: circles: modules in a circle: a → b → a"]
        );
    }

    #[test]
    fn circle_of_three_modules_is_a_fault() {
        let found = messages(&[
            ("a.rs", "use crate::b;"),
            ("b.rs", "use crate::c;"),
            ("c.rs", "use crate::a;"),
        ]);
        assert_eq!(
            found,
            ["crates/x/src: circles: modules in a circle: a → b → c → a"]
        );
    }

    #[test]
    fn tests_comments_and_parents_are_no_dependencies() {
        let found = messages(&[
            ("lib.rs", "mod a; use a::A;"),
            ("a.rs", "mod inner; use crate::b;"),
            ("a/inner.rs", "use super::A; use crate::a::B;"),
            (
                "b.rs",
                "// crate::a\n#[cfg(test)] mod tests { use crate::a; }\npub(crate) fn f() {}",
            ),
            ("b/tests.rs", "use crate::a;"),
        ]);
        assert_eq!(found, [""; 0]);
    }
}
