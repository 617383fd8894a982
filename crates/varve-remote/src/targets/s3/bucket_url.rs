//! The URL of a bucket.

use crate::naming::location::S3Location;

/// Returns the URL of the bucket, with its name in the path or in the host.
pub(super) fn bucket_url(
    place: &S3Location,
    endpoint: Option<&str>,
    region: &str,
) -> std::io::Result<String> {
    let bucket = &place.bucket;
    // A wildcard certificate does not cover a host name with a further dot.
    let in_path = place.path_style.unwrap_or(endpoint.is_some() || bucket.contains('.'));
    let amazon = format!("https://s3.{region}.amazonaws.com");
    let endpoint = endpoint.unwrap_or(&amazon).trim_end_matches('/');
    let url = match endpoint.split_once("://") {
        Some(("http" | "https", "")) => None,
        Some(("http" | "https", _)) if in_path => Some(format!("{endpoint}/{bucket}")),
        Some((scheme @ ("http" | "https"), host)) => Some(format!("{scheme}://{bucket}.{host}")),
        _ => None,
    };
    url.ok_or_else(|| std::io::Error::other(format!("the endpoint {endpoint:?} is not an http or https URL")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(bucket: &str, path_style: Option<bool>) -> S3Location {
        let (bucket, prefix) = (bucket.into(), String::new());
        S3Location { bucket, prefix, endpoint: None, region: None, path_style, as_of: None }
    }

    #[test]
    fn buckets_are_where_they_should_be() {
        let url = |bucket, style, endpoint| bucket_url(&place(bucket, style), endpoint, "eu-1").unwrap();
        assert_eq!(url("backup", None, None), "https://backup.s3.eu-1.amazonaws.com");
        assert_eq!(url("my.backup", None, None), "https://s3.eu-1.amazonaws.com/my.backup");
        assert_eq!(url("backup", None, Some("http://host:1/")), "http://host:1/backup");
        assert_eq!(url("backup", Some(false), Some("http://host:1")), "http://backup.host:1");
        assert!(bucket_url(&place("backup", None), Some("host"), "eu-1").is_err());
    }
}
