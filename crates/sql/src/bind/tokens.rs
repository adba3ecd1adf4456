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

/// Tokens from one place up to another, and what stands there instead.
pub(super) struct Edit {
    pub from: usize,
    pub to: usize,
    pub with: Vec<TokenWithSpan>,
}

/// Makes all changes in one pass, since a text may ask for as many as it has words. They do not overlap; in one place what is put in comes before
/// what is taken away.
pub(super) fn edit(tokens: Vec<TokenWithSpan>, mut edits: Vec<Edit>) -> Vec<TokenWithSpan> {
    if edits.is_empty() {
        return tokens;
    }
    edits.sort_by_key(|e| (e.from, e.to));
    let more: usize = edits.iter().map(|e| e.with.len()).sum();
    let mut out = Vec::with_capacity(tokens.len() + more);
    let (mut rest, mut at) = (tokens.into_iter(), 0);
    for e in edits {
        if e.from < at {
            continue;
        }
        out.extend(rest.by_ref().take(e.from - at));
        rest.by_ref().take(e.to - e.from).for_each(drop);
        out.extend(e.with);
        at = e.to;
    }
    out.extend(rest);
    out
}

/// The place of the parenthesis that closes the one in each place. Places are those of `solid`.
pub(super) fn closings(tokens: &[TokenWithSpan], solid: &[usize]) -> Vec<Option<usize>> {
    let (mut open, mut all) = (vec![], vec![None; solid.len()]);
    for (k, &i) in solid.iter().enumerate() {
        match tokens[i].token {
            Token::LParen => open.push(k),
            Token::RParen => {
                if let Some(o) = open.pop() {
                    all[o] = Some(k);
                }
            }
            _ => {}
        }
    }
    all
}

pub(super) fn quoted(s: String) -> Token {
    Token::Word(Word {
        value: s,
        quote_style: Some('"'),
        keyword: Keyword::NoKeyword,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::tokenizer::Tokenizer;

    fn read(text: &str) -> Vec<TokenWithSpan> {
        let dialect = PostgreSqlDialect {};
        let all = Tokenizer::new(&dialect, text).tokenize_with_location();
        all.expect("it can be read")
    }

    #[test]
    fn edits_are_made_at_once() {
        let (tokens, new) = (read("a,b,c"), read("x y"));
        let change = |from, to, with: &[TokenWithSpan]| Edit {
            from,
            to,
            with: with.to_vec(),
        };
        let edits = vec![
            change(4, 5, &new[..1]),
            change(0, 0, &new),
            change(0, 2, &[]),
            change(5, 5, &new[..1]),
            // It overlaps with another one.
            change(1, 3, &new),
        ];
        let text: String = edit(tokens, edits)
            .iter()
            .map(|t| t.token.to_string())
            .collect();
        assert_eq!(text, "x yb,xx");
    }

    #[test]
    fn parentheses_are_paired() {
        let tokens = read("(a ( ) ) ) ( (");
        let solid = solid(&tokens);
        let pairs: Vec<_> = closings(&tokens, &solid).into_iter().flatten().collect();
        assert_eq!(pairs, [4, 3]);
    }
}
