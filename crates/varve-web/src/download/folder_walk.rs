//! Walks through a folder in the order of its nodes, for a download.

use varve_block::with_causes;
use varve_content::{Files, Node, NodeKind};

/// Visits everything below a folder, except what is in folders that are `depth_max` deep. `visit`
/// gets the path of each node's folder, the node, and whether it is as deep. It returns the
/// path of the node, or `None` to leave out what is below it.
pub(super) fn walk_below<P>(
    files: &dyn Files,
    folder: &Node,
    path: P,
    depth_max: usize,
    mut visit: impl FnMut(&P, &Node, bool) -> Result<Option<P>, String>,
) -> Result<(), String> {
    // Each open folder is a list of the nodes that are left in it.
    let mut open = vec![(path, files.nodes(folder))];
    loop {
        let open_count = open.len();
        let Some((path, nodes)) = open.last_mut() else { return Ok(()) };
        let Some(node) = nodes.next() else {
            open.pop();
            continue;
        };
        let node = node.map_err(|error| with_causes(&error))?;
        let below = visit(path, &node, open_count >= depth_max)?;
        if let Some(below) = below.filter(|_| node.kind == NodeKind::Folder && open_count < depth_max) {
            open.push((below, files.nodes(&node)));
        }
    }
}
