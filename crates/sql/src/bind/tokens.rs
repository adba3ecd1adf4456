//! Tokens, as what rewrites a text before it is parsed looks at them.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

/// Begins a name that stands for something that the parser does not know. No text from outside may have it.
pub(super) const MARK: char = '\u{1}';

/// A token that is neither blank nor comment.
pub(super) fn solid(tokens: &[TokenWithSpan]) -> Vec<usize> {
    (0..tokens.len())
        .filter(|&i| !matches!(tokens[i].token, Token::Whitespace(_)))
        .collect()
}

/// The unquoted word of a token, in lower case.
pub(super) fn word_of(t: &TokenWithSpan) -> Option<String> {
    match &t.token {
        Token::Word(w) if w.quote_style.is_none() => Some(w.value.to_ascii_lowercase()),
        _ => None,
    }
}

pub(super) fn quoted(s: String) -> Token {
    Token::Word(Word {
        value: s,
        quote_style: Some('"'),
        keyword: Keyword::NoKeyword,
    })
}
