//! The spelling of schema names in each language.

/// Converts `nar_size` to `narSize`, as in Nix's JSON.
pub(super) fn camel(name: &str) -> String {
    let pascal = pascal(name);
    let mut letters = pascal.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => pascal,
    }
}

/// Converts `nar_size` to `NarSize`, for types and variants.
pub(super) fn pascal(name: &str) -> String {
    let mut pascal = String::new();
    for word in name.split('_') {
        let mut letters = word.chars();
        pascal.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        pascal.push_str(letters.as_str());
    }
    pascal
}

/// Converts `NarSize` to `nar_size`, for C.
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
    fn names_follow_the_style_of_each_language() {
        assert_eq!(camel("nar_size"), "narSize");
        assert_eq!(camel("url"), "url");
        assert_eq!(pascal("no_check_sigs"), "NoCheckSigs");
        assert_eq!(snake("PathInfoRequest"), "path_info_request");
    }
}
