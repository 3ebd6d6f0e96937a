// A prebuilt extension of JupyterLab 4, written by hand: one file, no build chain. It marks the words, texts, numbers
// and comments of %%rw cells and %rw lines; JupyterLab itself reads such cells as Python.
(function () {
  'use strict';
  const NAME = 'rw-sql-jupyterlab';
  // Written by python -m rw_sql.magics.lab_keywords.
  const KEYWORDS = new Set('ACTION ADD ALL ALLOW ALTER ANALYZE AND APPEND AS ASC AT BACK BACKFILL BEGIN BETWEEN BIGINT BOOLEAN BY BYTEA CACHE CANCEL CASCADE CASE CAST CHAR CHARACTER CHECK CHECKPOINT CLAMP CLOSE CLUSTER COLLATE COLUMN COLUMNS COMMIT CONFIG CONFIRM CONFLICT CONFLUENT CONNECTION CONNECTIONS CONNECTOR CONSTRAINT CONTINUITY CREATE CROSS CURSORS DATA DATABASES DATE DEFAULT DEFERRED DELETE DELIMITED DESC DESCRIBE DISTINCT DISTSQL DO DOUBLE DROP DUPLICATES EARLIEST ELSE EMIT ENCODE END ENGINE EXISTS EXPLAIN FALSE FILE FIXED FLUSH FOR FOREIGN FORMAT FRAGMENT FRAGMENTS FROM FULL FUNCTION FUNCTIONS GAPS GROUP HAVING HEADER HOUR IF IGNORE ILIKE IMMEDIATELY IN INCLUDE INDEX INDEXES INJECT INNER INSERT INT INTERNAL INTERVAL INTO IS ISOLATION JOB JOBS JOIN JSONB KEY LATEST LEFT LEVEL LIKE LIMIT LINEAGE LOCAL LOCATION LOGICAL MAP MATERIALIZED MERGE MESSAGE METRICS MINUTE NO NONE NOT NOTHING NULL NUMERIC OF OFFSET OFFSETS ON ONLY OPERATION OPERATIONS OPTIMIZE OR ORDER OVER OVERWRITE OWNER PARTITION PAUSE PHYSICAL PRECISION PRIMARY PROCESSLIST REAL REASON REBUILD RECORD RECOVER REFERENCES REFRESH REGISTRY RENAME REPLACE RESET RESTRICT RESUME REWIND ROLLBACK ROW SCHEMA SCHEMAS SECRET SECRETS SELECT SESSION SET SHIFT SHOW SINK SINKS SKIP SMALLINT SOURCE SOURCES SPLITS START STRUCT SUBSCRIPTION SUBSCRIPTIONS SWAP SYSTEM TABLE TABLES TEMP TEMPORARY THEN TIME TIMESTAMP TIMESTAMPTZ TO TRACE TRANSACTION TRUE TRUNCATE TTL TYPE UNDO UNION UNIQUE UNSAFE UNSET UPDATE USE USING VACUUM VALIDATE VALUES VARCHAR VARYING VERBOSE VERSION VIEW VIEWS WAIT WATERMARK WHEN WHERE WINDOW WITH WITHOUT WORK ZONE'.split(' '));
  const CELL = /^\s*%%rw\b[^\n]*(?:\n|$)/;
  const LINE = /^[ \t]*(?:[A-Za-z_]\w*\s*=\s*)?%rw[ \t]+(?!watch\b)/gm;
  const PIECE =
    /--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|[eErR]?'(?:[^']|'')*(?:'|$)|"(?:[^"]|"")*(?:"|$)|`[^`]*(?:`|$)|\d[\w.]*|[A-Za-z_]\w*/g;

  // The pieces of a cell that have a colour, and the statements as a whole, which lose Python's colours.
  function piecesOf(text) {
    const found = [];
    const add = (start, end) => {
      if (start >= end) return;
      found.push({ from: start, to: end, kind: 'text' });
      PIECE.lastIndex = start;
      for (let match; (match = PIECE.exec(text)) && match.index < end; ) {
        const kind = kindOf(match[0]);
        if (kind) found.push({ from: match.index, to: Math.min(end, PIECE.lastIndex), kind });
      }
    };
    const cell = CELL.exec(text);
    if (cell) add(cell[0].length, text.length);
    else
      for (const match of text.matchAll(LINE)) {
        const start = match.index + match[0].length;
        const end = text.indexOf('\n', start);
        add(start, end < 0 ? text.length : end);
      }
    return found;
  }

  function kindOf(piece) {
    if (piece.startsWith('--') || piece.startsWith('/*')) return 'comment';
    if (piece.endsWith("'") || /^[eErR]?'/.test(piece)) return 'string';
    if (/^\d/.test(piece)) return 'number';
    return KEYWORDS.has(piece.toUpperCase()) ? 'keyword' : '';
  }

  const COLOURS = {
    text: ['var(--jp-content-font-color1)', 'normal'],
    comment: ['var(--jp-mirror-editor-comment-color)', 'normal'],
    string: ['var(--jp-mirror-editor-string-color)', 'normal'],
    number: ['var(--jp-mirror-editor-number-color)', 'normal'],
    keyword: ['var(--jp-mirror-editor-keyword-color)', 'bold']
  };

  let scope = {};
  const shared = async name => {
    const versions = scope[name] || {};
    const version = Object.keys(versions).sort().pop();
    if (!version) throw new Error(`JupyterLab does not share ${name}`);
    return (await versions[version].get())();
  };

  function highlighter(state, view) {
    const { Decoration, EditorView, ViewPlugin } = view;
    const { Prec } = state;
    const marks = {};
    const rules = {};
    for (const [kind, [color, fontWeight]] of Object.entries(COLOURS)) {
      marks[kind] = Decoration.mark({ class: `rw-sql-${kind}` });
      // Python's colours are on elements inside of these, or around them.
      rules[`.rw-sql-${kind}, .rw-sql-${kind} *`] = {
        color: `${color} !important`,
        fontWeight: `${fontWeight} !important`,
        fontStyle: 'normal'
      };
    }
    const build = editor => {
      const text = editor.state.doc.toString();
      const ranges = text.includes('%rw') ? piecesOf(text).map(({ from, to, kind }) => marks[kind].range(from, to)) : [];
      return Decoration.set(ranges, true);
    };
    const plugin = ViewPlugin.fromClass(
      class {
        constructor(editor) {
          this.decorations = build(editor);
        }
        update(change) {
          if (change.docChanged) this.decorations = build(change.view);
        }
      },
      { decorations: value => value.decorations }
    );
    return [Prec.lowest(plugin), EditorView.theme(rules)];
  }

  const container = {
    init(given) {
      scope = given;
    },
    async get(module) {
      if (module !== './extension') throw new Error(`${NAME} has no module ${module}`);
      const [codemirror, state, view] = await Promise.all(
        ['@jupyterlab/codemirror', '@codemirror/state', '@codemirror/view'].map(shared)
      );
      const plugin = {
        id: `${NAME}:cells`,
        description: 'Colours the statements of %%rw cells.',
        autoStart: true,
        requires: [codemirror.IEditorExtensionRegistry],
        activate: (_app, registry) => {
          registry.addExtension({
            name: `${NAME}:cells`,
            factory: () =>
              codemirror.EditorExtensionRegistry.createImmutableExtension(highlighter(state, view))
          });
        }
      };
      return () => plugin;
    }
  };
  if (typeof window !== 'undefined') (window._JUPYTERLAB = window._JUPYTERLAB || {})[NAME] = container;
  if (typeof module !== 'undefined') module.exports = { piecesOf };
})();
