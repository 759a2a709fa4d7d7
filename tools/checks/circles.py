#!/usr/bin/env python3
"""No module of src/ includes itself by way of others.

A module is a .c file and the header of the same name, taken together, because a reader has to understand both at once.
If two modules include each other, neither can be read, tested or moved without the other. The layers and folders of
layers.py exclude circles between folders; this check excludes them between the modules of one folder too.
"""

from layers import includes
from project import ROOT, finish, sources

# Circles that exist today and have to go, each as the set of its modules. An entry that is no longer needed is a fault,
# so that this list can only shrink.
KNOWN = []


def module_of(path):
    """`src/jit/key/key.c` and `src/jit/key/key.h` are both the module "jit/key/key"."""
    return str(path.relative_to(ROOT / "src").with_suffix(""))


def graph():
    """Module -> the modules that its files include."""
    modules = {}
    for path in sources("src", suffixes=(".c", ".h", ".def")):
        used = modules.setdefault(module_of(path), set())
        for _, include in includes(path):
            target = ROOT / "src" / include.strip('"')
            if include.startswith('"') and target.exists():
                used.add(module_of(target))
        used.discard(module_of(path))
    return modules


def circles(modules):
    """The groups of two or more modules that reach each other (Tarjan's strongly connected components)."""
    index, low, stack, groups = {}, {}, [], []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        for used in sorted(modules[module]):
            if used not in index:
                visit(used)
            if used in stack:
                low[module] = min(low[module], low[used])
        if low[module] == index[module]:
            group = set(stack[stack.index(module):])
            del stack[stack.index(module):]
            if len(group) > 1:
                groups.append(group)

    for module in sorted(modules):
        if module not in index:
            visit(module)
    return groups


def main():
    modules = graph()
    found = circles(modules)
    faults = []
    for group in found:
        if not any(group <= known for known in KNOWN):
            arrows = [f"{module} -> {used}" for module in sorted(group) for used in sorted(modules[module] & group)]
            faults.append(f"a circle of includes: {', '.join(arrows)}")
    faults += [f"KNOWN lists a circle that no longer exists: {', '.join(sorted(known))}"
               for known in KNOWN if not any(group <= known for group in found)]
    finish(faults, f"circles, {len(modules)} modules, {len(KNOWN)} known circles")


if __name__ == "__main__":
    main()
