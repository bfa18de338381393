//! Command lines with placeholders: `nix copy --from {from} --to {dest} {path}`.

use crate::error::BenchError;

/// A command with placeholders, split into arguments as a shell does, but run without a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The program and its arguments, with placeholders.
    pub arguments: Vec<String>,
}

impl Template {
    /// Splits a command line.
    ///
    /// Errors: an open quote, no program, an unknown placeholder, or no `{dest}` or `{path}`; a
    /// command without a destination would write elsewhere.
    pub fn parse(text: &str) -> Result<Template, BenchError> {
        let fault = |reason: String| BenchError::Template {
            text: text.to_owned(),
            reason,
        };
        let arguments = shell_words::split(text).map_err(|error| fault(error.to_string()))?;
        if arguments.is_empty() {
            return Err(fault("there is no program".into()));
        }
        if let Some(name) = arguments.iter().find_map(|word| unknown_placeholder(word)) {
            return Err(fault(format!(
                "unknown placeholder {{{name}}}; use {{from}}, {{dest}} and {{path}}"
            )));
        }
        for placeholder in [DEST, PATH] {
            if !arguments.iter().any(|word| word.contains(placeholder)) {
                return Err(fault(format!("it lacks {placeholder}")));
            }
        }
        Ok(Template { arguments })
    }

    /// The arguments with the placeholders replaced: `{from}` by the source, `{dest}` by the root
    /// of the target store, which does not exist yet, and `{path}` by the store paths to copy. An
    /// argument that is only `{path}` becomes one argument per path.
    pub fn fill(&self, from: &str, dest: &str, paths: &[String]) -> Vec<String> {
        let mut filled = Vec::new();
        for argument in &self.arguments {
            if argument == PATH {
                filled.extend_from_slice(paths);
                continue;
            }
            let argument = argument.replace(FROM, from);
            let argument = argument.replace(DEST, dest);
            filled.push(argument.replace(PATH, &paths.join(" ")));
        }
        filled
    }

    /// The program.
    pub fn program(&self) -> &str {
        self.arguments.first().map_or("", String::as_str)
    }

    /// The command quoted for a shell.
    pub fn text(&self) -> String {
        shell_words::join(&self.arguments)
    }
}

/// The unknown name in the first pair of braces that looks like a placeholder. Braces around
/// anything but lower-case letters are ordinary text, such as a script of awk.
fn unknown_placeholder(word: &str) -> Option<&str> {
    word.split('{').skip(1).find_map(|rest| {
        let (name, _) = rest.split_once('}')?;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
        (is_name && !["from", "dest", "path"].contains(&name)).then_some(name)
    })
}

const FROM: &str = "{from}";
const DEST: &str = "{dest}";
const PATH: &str = "{path}";

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &str) -> Vec<String> {
        let paths = ["/nix/store/a".to_owned(), "/nix/store/b".to_owned()];
        let template = Template::parse(text).unwrap();
        template.fill("file:///a b", "/d", &paths)
    }

    #[test]
    fn placeholders_are_filled_without_a_shell() {
        assert_eq!(
            fill("'my nix' copy --from {from} --to=local?root={dest} {path}"),
            [
                "my nix",
                "copy",
                "--from",
                "file:///a b",
                "--to=local?root=/d",
                "/nix/store/a",
                "/nix/store/b"
            ]
        );
    }

    #[test]
    fn command_without_destination_is_refused() {
        for (text, reason) in [
            ("", "no program"),
            ("nix copy {path}", "lacks {dest}"),
            ("nix copy --to {dest}", "lacks {path}"),
            (
                "nix copy --to {dest} {paths}",
                "unknown placeholder {paths}",
            ),
            ("nix 'copy", "quote"),
        ] {
            let error = Template::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn other_braces_are_kept() {
        assert_eq!(fill("awk '{ print $1 }' {dest} {path}")[1], "{ print $1 }");
    }
}
