//! S3's answers that are XML: a page of a listing, and what an error says.
//!
//! Names come encoded as in an address (`encoding-type=url`), so no element that is read here holds another one or a character of XML's own but as an
//! entity. A name outside of what was asked for is an error: a listing that is misread must not look like one that is short.
//!
//! Left out on purpose: a reader of XML in general.

/// Right below a folder, without its name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Below {
    pub objects: Vec<String>,
    pub folders: Vec<String>,
}

/// A part of a listing, and the token of the next part.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    pub below: Below,
    pub next: Option<String>,
}

/// What stands between the tags of the first element of this name, and what follows it.
fn element<'a>(xml: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let mut rest = xml;
    loop {
        let at = rest.find(&format!("<{name}"))?;
        let tag = &rest[at + 1 + name.len()..];
        let end = tag.find('>')?;
        let (attributes, inner) = (&tag[..end], &tag[end + 1..]);
        if attributes.ends_with('/') && attributes.trim_end_matches('/').trim().is_empty() {
            return Some(("", inner));
        }
        if attributes.is_empty() || attributes.starts_with(char::is_whitespace) {
            let close = inner.find(&format!("</{name}>"))?;
            return Some((&inner[..close], &inner[close + name.len() + 3..]));
        }
        rest = inner;
    }
}

fn elements<'a>(xml: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let mut rest = xml;
    std::iter::from_fn(move || {
        let (inner, after) = element(rest, name)?;
        rest = after;
        Some(inner)
    })
}

/// The text of the first element of this name.
pub fn text_of(xml: &str, name: &str) -> Option<String> {
    let text = element(xml, name)?.0;
    let entities = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#34;", "\""),
        ("&apos;", "'"),
        ("&#39;", "'"),
        ("&amp;", "&"),
    ];
    let plain = |t: String, (from, to): &(&str, &str)| t.replace(from, to);
    Some(entities.iter().fold(text.to_owned(), plain))
}

/// A name as an address has it; `None` if it is not encoded so.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'%' => {
                let digits = std::str::from_utf8(after.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &after[2..];
            }
            b'+' => bytes.push(b' '),
            b => bytes.push(*b),
        }
    }
    String::from_utf8(bytes).ok()
}

/// Reads a page of the listing of what begins with `prefix`.
pub fn page(xml: &str, prefix: &str) -> Result<Page, String> {
    let Some((all, _)) = element(xml, "ListBucketResult") else {
        return Err("the answer is no listing".into());
    };
    let encoded = text_of(all, "EncodingType").is_some_and(|e| e == "url");
    let name = |part: &str, element: &str| {
        let text = text_of(part, element).ok_or_else(|| format!("a listing without {element}"))?;
        let name = match encoded {
            true => decode(&text).ok_or_else(|| format!("a name that is not encoded: {text}"))?,
            false => text,
        };
        let below = name.strip_prefix(prefix).map(str::to_owned);
        below.ok_or_else(|| format!("the listing of {prefix} has {name}"))
    };
    let mut below = Below::default();
    for part in elements(all, "Contents") {
        let object = name(part, "Key")?;
        // Some tools make an object for the folder itself.
        if !object.is_empty() {
            below.objects.push(object);
        }
    }
    for part in elements(all, "CommonPrefixes") {
        let folder = name(part, "Prefix")?;
        below.folders.push(folder.trim_end_matches('/').to_owned());
    }
    let next = match text_of(all, "IsTruncated").as_deref() {
        Some("true") => {
            let token = text_of(all, "NextContinuationToken").filter(|t| !t.is_empty());
            Some(token.ok_or("a listing that goes on, without a token")?)
        }
        _ => None,
    };
    Ok(Page { below, next })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(rest: &str) -> String {
        format!(
            r#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix>p%2F</Prefix>
<KeyCount>3</KeyCount><Delimiter>%2F</Delimiter><EncodingType>url</EncodingType>{rest}</ListBucketResult>"#
        )
    }

    #[test]
    fn a_page() {
        let xml = listing(
            "<Contents><Key>p%2Fa.wal</Key><Size>3</Size></Contents><Contents><Key>p%2F</Key></Contents>\
             <Contents><Key>p%2Fb+c</Key></Contents><CommonPrefixes><Prefix>p%2Fd%2F</Prefix></CommonPrefixes>\
             <IsTruncated>true</IsTruncated><NextContinuationToken>1&amp;2=</NextContinuationToken>",
        );
        let page = page(&xml, "p/").unwrap();
        assert_eq!(page.below.objects, ["a.wal", "b c"]);
        assert_eq!(page.below.folders, ["d"]);
        assert_eq!(page.next.as_deref(), Some("1&2="));
    }

    #[test]
    fn a_page_without_anything() {
        let nothing = page(&listing("<IsTruncated>false</IsTruncated>"), "p/").unwrap();
        assert_eq!(nothing.below, Below::default());
        assert_eq!(nothing.next, None);
    }

    #[test]
    fn what_is_misread_is_an_error() {
        for (rest, why) in [
            ("<Contents><Key>q%2Fa</Key></Contents>", "the listing of p/"),
            ("<Contents><Key>p%2</Key></Contents>", "not encoded"),
            ("<Contents><Size>3</Size></Contents>", "without Key"),
            ("<IsTruncated>true</IsTruncated>", "without a token"),
        ] {
            let error = page(&listing(rest), "p/").unwrap_err();
            assert!(error.contains(why), "{rest}: {error}");
        }
        assert!(page("<html>a proxy says hello</html>", "p/").is_err());
    }

    #[test]
    fn what_an_error_says() {
        let xml =
            "<Error><Code>NoSuchBucket</Code><Message>Not &lt;here&gt;</Message><Key/></Error>";
        assert_eq!(text_of(xml, "Code").as_deref(), Some("NoSuchBucket"));
        assert_eq!(text_of(xml, "Message").as_deref(), Some("Not <here>"));
        assert_eq!(text_of(xml, "Key").as_deref(), Some(""));
        assert_eq!(text_of(xml, "Resource"), None);
    }
}
