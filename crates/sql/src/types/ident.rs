//! Names and strings as SQL has to write them.

/// The name as SQL has to write it.
pub fn quote_ident(name: &str) -> String {
    let plain = name
        .bytes()
        .enumerate()
        .all(|(i, b)| matches!(b, b'a'..=b'z' | b'_') || i > 0 && b.is_ascii_digit());
    if plain && !name.is_empty() && !is_reserved(name) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// The string as a literal, with the prefix E where it has backslashes.
pub fn quote_literal(text: &str) -> String {
    let prefix = if text.contains('\\') { "E" } else { "" };
    let quoted = text.replace('\\', "\\\\").replace('\'', "''");
    format!("{prefix}'{quoted}'")
}

/// Words that PostgreSQL quotes when it prints a name (all but its unreserved keywords).
fn is_reserved(name: &str) -> bool {
    const WORDS: &str = " all analyse analyze and any array as asc asymmetric authorization between bigint binary bit \
        boolean both case cast char character check coalesce collate collation column concurrently constraint create \
        cross current_catalog current_date current_role current_schema current_time current_timestamp current_user dec \
        decimal default deferrable desc distinct do else end except exists extract false fetch float for foreign freeze \
        from full grant greatest group grouping having ilike in initially inner inout int integer intersect interval \
        into is isnull join lateral leading least left like limit localtime localtimestamp national natural nchar none \
        normalize not notnull null nullif numeric offset on only or order out outer overlaps overlay placing position \
        precision primary real references returning right row select session_user setof similar smallint some substring \
        symmetric table tablesample then time timestamp to trailing treat trim true union unique user using values \
        varchar variadic verbose when where window with xmlattributes xmlconcat xmlelement xmlexists xmlforest \
        xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable ";
    WORDS.contains(&format!(" {name} "))
}

/// Whether a word cannot be a column's name without quotes.
pub fn is_keyword(word: &str) -> bool {
    const WORDS: &[&str] = &[
        "all",
        "analyse",
        "analyze",
        "and",
        "any",
        "array",
        "as",
        "asc",
        "asymmetric",
        "both",
        "case",
        "cast",
        "check",
        "collate",
        "column",
        "constraint",
        "create",
        "default",
        "deferrable",
        "desc",
        "distinct",
        "do",
        "else",
        "end",
        "except",
        "false",
        "fetch",
        "for",
        "foreign",
        "from",
        "grant",
        "group",
        "having",
        "in",
        "initially",
        "intersect",
        "into",
        "lateral",
        "leading",
        "limit",
        "not",
        "null",
        "offset",
        "on",
        "only",
        "or",
        "order",
        "placing",
        "primary",
        "references",
        "returning",
        "select",
        "some",
        "symmetric",
        "table",
        "then",
        "to",
        "trailing",
        "true",
        "union",
        "unique",
        "using",
        "variadic",
        "when",
        "where",
        "window",
        "with",
    ];
    WORDS.contains(&word)
}
