//! The name of a new controller, in the forms that code, manifests and kinds want.

use anyhow::bail;

/// The name that the example has, in each form.
const EXAMPLE: &str = "greeting";
const EXAMPLE_KIND: &str = "Greeting";
const EXAMPLE_PLURAL: &str = "greetings";

const LONGEST: usize = 40;

/// Words that no crate can have as its name.
const TAKEN: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "core", "crate", "do", "dyn",
    "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro",
    "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "std", "struct",
    "super", "test", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while",
    "yield",
];

/// Words in lower case with hyphens between them.
pub struct Name(String);

impl Name {
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let word = |word: &str| {
            word.starts_with(|c: char| c.is_ascii_lowercase())
                && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        };
        if text.is_empty() || text.len() > LONGEST || !text.split('-').all(word) {
            bail!("{text:?} is no name for a controller: use words like web-shop, of at most {LONGEST} letters");
        }
        if TAKEN.contains(&text) {
            bail!("{text:?} is a word of Rust: use another name");
        }
        Ok(Self(text.to_owned()))
    }

    pub fn kebab(&self) -> &str {
        &self.0
    }

    /// As crates are named in code.
    fn snake(&self) -> String {
        self.0.replace('-', "_")
    }

    /// As kinds are named.
    fn kind(&self) -> String {
        let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
        self.0.split('-').map(capital).collect()
    }

    fn plural(&self) -> String {
        format!("{}s", self.kind().to_ascii_lowercase())
    }

    /// The example's text with this name in place of its own.
    pub fn put_into(&self, text: &str) -> String {
        text.replace(EXAMPLE_PLURAL, &self.plural())
            .replace(EXAMPLE_KIND, &self.kind())
            .replace(&format!("{EXAMPLE}::"), &format!("{}::", self.snake()))
            .replace(EXAMPLE, &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_form_that_its_place_wants() {
        let name = Name::parse("web-shop").unwrap();
        let text = "use greeting::{Greeting, GreetingSpec}; // greetings.example.com, \"greeting\"";
        assert_eq!(
            name.put_into(text),
            "use web_shop::{WebShop, WebShopSpec}; // webshops.example.com, \"web-shop\""
        );
        let same = Name::parse("greeting").unwrap();
        assert_eq!(same.put_into(text), text);
        let long = "a".repeat(LONGEST + 1);
        for bad in [
            "",
            "Web",
            "web_shop",
            "-web",
            "web-",
            "9to5",
            "web--shop",
            "match",
            "../x",
            &long,
        ] {
            assert!(Name::parse(bad).is_err(), "{bad:?}");
        }
    }
}
