#!/usr/bin/env python3
"""Prints a public header as Doxygen wants it: comments of the project's own kind become documentation.

  doxygen_filter.py include/treadle/view.h

  - The opening comment is the page of the file. Paragraphs indented by three spaces are code, those indented by more are
    shown as they are.
  - A comment above a declaration belongs to it, and to the declarations that follow without a blank line.
  - A remark after a declaration, and the lines that continue it, belong to it.
  - `// ---- local: kv <= q && q - kv < window ----` belongs to what follows it and has no comment of its own.
  - What is private, or says `// internal`, is left out.

Lines stay where they were, so that what Doxygen says names them.
"""

import pathlib
import re
import sys

# A sign that Doxygen would take for a command, a tag, a link or a list.
SPECIAL = re.compile(r"([\\@<>#%$])")
SECTION = re.compile(r"\s*// ---- (.*?) ----$")
SEVERAL = re.compile(r"^\s*[\w:]+(<[^;]*>)? \w+( = [^,;()]+)?, \w+[^()]*;")
REMARK = re.compile(r"^(\s*\S.*?[;,{(]|\s*\w+)(\s+)// (.*)$")


def plain(text):
    """`text` so that it means itself."""
    text = SPECIAL.sub(r"\\\1", text)
    text = re.sub(r"^(\s*)([-*+]|\d+\.) ", r"\1\\\2 ", text)
    text = text.replace('"', r"\"").replace("::", r"\::")
    return re.sub(r"-(?=--)", r"&minus;", text)


def opening(lines):
    """The opening comment, as many lines as it had."""
    out, kind, after_blank = [], "text", True
    for line in lines:
        body = line[2:].rstrip()
        depth = len(body) - len(body.lstrip())
        if not body:
            after_blank = True
        elif after_blank or depth >= 3 or kind != "text":
            wanted = "text" if depth < 2 else "code" if depth < 5 and kind != "verbatim" else "verbatim"
            if wanted != kind:
                close = {"text": "", "code": "@endcode ", "verbatim": "@endverbatim "}[kind]
                begin = {"text": "", "code": "@code{.cpp} ", "verbatim": "@verbatim "}[wanted]
                # On the line before, which is blank, so that none is added.
                out[-1] = "/// " + close + begin
                kind = wanted
            after_blank = False
        out.append("///" + (body if kind != "text" else plain(body)))
    if kind != "text":
        out[-1] += "\n/// @end" + kind
    out[0] = "/// @file\n///\n" + out[0]
    return out


def depth_of(line):
    return len(line) - len(line.lstrip())


def ends(line):
    """Whether a declaration ends with this line."""
    code = re.sub(r"\s*//.*$", "", line).rstrip()
    return code.endswith((";", "}", ",")) or code.lstrip().startswith(("TREADLE_", "#")) and code.endswith(")")


def hidden(lines):
    """Numbers of the lines that are not for users: what is internal, and macros."""
    numbers, inside = set(), False
    for i, line in enumerate(lines):
        if re.search(r"(//|;) internal$", line) or re.search(r"//.*\binternal\b", line) and ";" in line:
            numbers.add(i)
    return numbers


def public(lines):
    """`lines` with nothing in what is private."""
    out, private = [], None
    for line in lines:
        if private is not None and (line.strip() == "public:" or line.startswith("}") or
                                    line.strip() == "};" and depth_of(line) < private):
            private = None
        elif line.strip() == "private:":
            private = depth_of(line)
        out.append("" if private is not None else line)
    return out


def each(doc, code):
    """`Tensor out, lse;` as a declaration for each name, all with the same documentation."""
    of = re.match(r"\s*([\w:]+(?:<[^;]*>)?) (.*);", code)
    names = re.split(r", (?![^{(<]*[})>])", of[2])
    return " ".join(f"{doc}{of[1]} {name};" for name in names)


def without_macros(lines):
    """`lines` without definitions of macros, which docs/Doxyfile has as what they mean to a reader."""
    out, inside = [], False
    for line in lines:
        inside = inside or line.startswith(("#define", "#undef"))
        out.append("" if inside else line)
        inside = inside and line.endswith("\\")
    return out


def rest(lines):
    """What follows the opening comment."""
    lines = without_macros(public(lines))
    out, section = [], None
    doc, doc_depth, own = [], -1, False  # of the declaration to come, or of the one before
    begins = True  # a declaration begins with the next line of code
    body_until = None  # depth of the } that ends a function's body
    internal = hidden(lines)
    continues = None  # column of a remark that may go on
    head_depth, parentheses = 0, 0  # of the declaration: where it began, and how many are open
    for number, line in enumerate(lines):
        bare, depth = line.strip(), depth_of(line)
        if body_until is not None:
            out.append(line)
            if depth == body_until and bare.startswith("}"):
                body_until, begins = None, True
            continue
        if not bare:
            out.append(line)
            doc, doc_depth, continues = [], -1, None
            begins = True
            continue
        if match := SECTION.match(line):
            section = [plain(match[1].split(": ", 1)[1])] if ": " in match[1] else None
            doc, doc_depth = [], -1
            out.append(line)
            continue
        if bare.startswith("//"):
            if continues is not None and abs(line.index("//") - continues) < 2 and depth > doc_depth + 2:
                out.append(line[: line.index("//")] + "///< " + plain(bare[2:].strip()))
                continue
            text = bare[2:]
            if not own:
                doc, own = [], True
            doc.append(plain(text[1:] if text.startswith(" ") else text))
            doc_depth = depth
            out.append(line)  # as a plain comment; the declaration carries the text
            continue
        continues = None
        remark = REMARK.match(line)
        code = remark[1] if remark else line
        is_declaration = begins and not re.match(
            r"(#|\}|public:|private:|protected:|namespace|requires|extern)", bare)
        prefix = ""
        if is_declaration and number not in internal:
            text = doc if doc and depth == doc_depth else (section or [])
            if text and not (remark and ends(line) and not own):
                prefix = "/** " + " ".join(t if t.strip() else "@par\n" for t in text).replace("*/", "* /") + " */ "
        own = False
        if is_declaration and number in internal and ";" in bare:
            prefix = "/** @private */ "
        if remark and is_declaration and not prefix and SEVERAL.match(code):
            # A remark after several names is Doxygen's for the last one alone.
            out.append(each("/** " + plain(remark[3]) + " */ ", code))
        elif prefix and SEVERAL.match(code):
            out.append(each(prefix, code))
        elif remark and not prefix.startswith("/** @private") and is_declaration or remark and ends(code):
            begin = "///< "
            if code.rstrip().endswith("{"):
                out.append(prefix + line)
            else:
                out.append(prefix + code + remark[2] + begin + plain(remark[3]))
                continues = line.index("//")
        else:
            out.append(prefix + line)
        if bare.startswith("#"):
            begins = True
            continue
        if begins:
            head_depth, parentheses = depth, 0
        code = re.sub(r"\s*//.*$", "", line)
        parentheses += code.count("(") - code.count(")")
        opens = re.match(r"(class|struct|enum|namespace|union|extern)\b", bare)
        begins = parentheses == 0 and (ends(line) or bare.endswith(":") or bare.endswith("{") and bool(opens))
        if bare.endswith("{") and parentheses == 0 and not begins:
            body_until = head_depth
        if re.match(r"(class|struct|enum|namespace)\b", bare) and bare.endswith("{"):
            doc, doc_depth = (doc, depth) if doc else ([], -1)
    return out


def filtered(text):
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if not line.startswith("//")), len(lines))
    head = opening(lines[:first]) if first else []
    return "\n".join(head + rest(lines[first:])) + "\n"


if __name__ == "__main__":
    print(filtered(pathlib.Path(sys.argv[1]).read_text()), end="")
