//! Names of the definition as the languages spell them.

/// `nar_size` as Nix's JSON has it, `narSize`.
pub(super) fn camel(name: &str) -> String {
    let pascal = pascal(name);
    let mut letters = pascal.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => pascal,
    }
}

/// `nar_size` as a type or a variant, `NarSize`.
pub(super) fn pascal(name: &str) -> String {
    let mut pascal = String::new();
    for word in name.split('_') {
        let mut letters = word.chars();
        pascal.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        pascal.push_str(letters.as_str());
    }
    pascal
}

/// `NarSize` as C has it, `nar_size`.
pub(super) fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_as_each_language_does() {
        assert_eq!(camel("nar_size"), "narSize");
        assert_eq!(camel("url"), "url");
        assert_eq!(pascal("no_check_sigs"), "NoCheckSigs");
        assert_eq!(snake("PathInfoRequest"), "path_info_request");
    }
}
