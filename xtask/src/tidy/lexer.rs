//! Rust source with its comments and literals blanked out, so that a word search sees code only.
//!
//! Every removed character becomes a space and newlines stay, so line numbers hold. Understands nested block comments,
//! escapes, raw strings with any number of `#`, byte and C strings, and tells a lifetime from a character.
//! Left out on purpose: everything else of the grammar; a macro's tokens count as code.

/// `source` with comments, string and character literals replaced by spaces.
pub fn code_only(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let skip = comment(rest)
            .or_else(|| raw_string(rest, &out))
            .or_else(|| quoted(rest))
            .unwrap_or(0);
        if skip == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            out.extend(
                rest[..skip]
                    .chars()
                    .map(|c| if c == '\n' { '\n' } else { ' ' }),
            );
            rest = &rest[skip..];
        }
    }
    out
}

/// Lines (from 1) on which `word` stands alone as an identifier.
pub fn lines_with_word(code: &str, word: &str) -> Vec<usize> {
    let identifier = |c: char| c.is_alphanumeric() || c == '_';
    code.lines()
        .enumerate()
        .filter(|(_, line)| line.split(|c| !identifier(c)).any(|w| w == word))
        .map(|(i, _)| i + 1)
        .collect()
}

fn comment(s: &str) -> Option<usize> {
    if s.starts_with("//") {
        return Some(s.find('\n').unwrap_or(s.len()));
    }
    if !s.starts_with("/*") {
        return None;
    }
    let (mut depth, mut at) = (0usize, 0usize);
    while at < s.len() {
        if s[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if s[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += s[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    Some(s.len())
}

/// `r"…"`, `r#"…"#` and their `b` and `c` forms; `before` tells a prefix from the end of an identifier.
fn raw_string(s: &str, before: &str) -> Option<usize> {
    if before.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let body = ["br", "cr", "r"].iter().find_map(|p| s.strip_prefix(p))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let inner = body[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let start = s.len() - inner.len();
    Some(
        inner
            .find(&close)
            .map_or(s.len(), |end| start + end + close.len()),
    )
}

fn quoted(s: &str) -> Option<usize> {
    let quote = s.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut chars = s.char_indices().skip(1).peekable();
    if quote == '\'' {
        // 'a' is a character, 'a without a closing quote right after is a lifetime.
        let mut look = s.chars().skip(1);
        let (first, second) = (look.next()?, look.next());
        if first != '\\' && second != Some('\'') {
            return None;
        }
    }
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == quote {
            return Some(at + 1);
        }
    }
    Some(s.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<usize> {
        lines_with_word(&code_only(source), "unsafe")
    }

    #[test]
    fn sees_code() {
        assert_eq!(words("fn a() {\n  unsafe { b() }\n}"), [2]);
        assert_eq!(words("let a: &'static str = x; unsafe {}"), [1]);
        assert_eq!(words("let c = '\"'; unsafe {}"), [1]);
        assert_eq!(words("let c = '\\''; unsafe {}"), [1]);
        assert_eq!(words("let s = \"\\\"\"; unsafe {}"), [1]);
        assert_eq!(words("let s = r#\"a\"b\"#; unsafe {}"), [1]);
        assert_eq!(words("for\"x\"; unsafe {}"), [1]);
    }

    #[test]
    fn passes_over_comments_and_literals() {
        assert!(words("// unsafe\n/* a /* unsafe */ unsafe */").is_empty());
        assert!(words("let s = \"unsafe\"; let r = r##\"unsafe\"# unsafe\"##;").is_empty());
        assert!(words("let b = br\"unsafe\"; let c = b\"unsafe\";").is_empty());
    }

    #[test]
    fn a_longer_name_is_another_word() {
        assert!(words("#![forbid(unsafe_code)]").is_empty());
    }

    #[test]
    fn keeps_line_numbers() {
        assert_eq!(words("/* a\nb */\n\"x\ny\"\nunsafe {}"), [5]);
    }
}
