#include "text/jinja/resolver.h"

#include <unordered_map>

namespace lockstep::text::jinja {
namespace {

using S = Statement::Kind;

// Variables of one frame: the template's, or one macro call's.
struct Function {
  int frame_size = 0;
};

struct Scope {
  Scope(Scope* outer, Function* function) : outer(outer), function(function) {}
  Scope* outer;
  Function* function;
  std::unordered_map<std::string_view, int> slots;
  Statement* loop = nullptr;   // the for whose body this is
  Statement* macro = nullptr;  // the macro or call block whose body this is
};

class Resolver {
 public:
  explicit Resolver(Program& program) : program_(program) {}

  void Run() {
    Function function;
    Scope scope(nullptr, &function);
    Inside(program_.body, scope);
    program_.frame_size = function.frame_size;
  }

 private:
  static int Declare(Scope& scope, std::string_view name) {
    const auto [it, is_new] = scope.slots.emplace(name, scope.function->frame_size);
    if (is_new) ++scope.function->frame_size;
    return it->second;
  }

  static void DeclareTarget(Scope& scope, Target& target) {
    if (target.kind == Target::Kind::kVariable) target.slot = Declare(scope, target.name);
    for (Target& part : target.parts) DeclareTarget(scope, part);
  }

  // What the statements set in this very scope.
  static void DeclareBody(Scope& scope, Body& body) {
    for (Statement* statement : body) {
      if (statement->kind == S::kSet || statement->kind == S::kSetBlock) DeclareTarget(scope, statement->target);
      if (statement->kind == S::kMacro) statement->name_slot = Declare(scope, statement->text);
      for (Branch& branch : statement->branches) DeclareBody(scope, branch.body);
    }
  }

  // Declares and resolves a body whose scope may hold variables already. Returns the scope's slots.
  void Inside(Body& body, Scope& scope) {
    DeclareBody(scope, body);
    for (Statement* statement : body) Resolve(*statement, scope);
  }

  // A block with a scope of its own in the same frame.
  SlotRange InnerBlock(Body& body, Scope& outer) {
    Scope scope(&outer, outer.function);
    const int begin = scope.function->frame_size;
    DeclareBody(scope, body);
    const int end = scope.function->frame_size;
    for (Statement* statement : body) Resolve(*statement, scope);
    return {begin, end};
  }

  void Resolve(Statement& s, Scope& scope) {
    switch (s.kind) {
      case S::kFor:
        return ResolveFor(s, scope);
      case S::kMacro:
      case S::kCallBlock:
        return ResolveMacro(s, scope);
      case S::kWith:
        return ResolveWith(s, scope);
      case S::kIf:
        for (Branch& branch : s.branches) {
          Resolve(branch.condition, scope);
          for (Statement* statement : branch.body) Resolve(*statement, scope);
        }
        return;
      case S::kSet:
        Resolve(s.value, scope);
        return ResolveTarget(s.target, scope);
      case S::kSetBlock:
        s.slots = InnerBlock(s.body, scope);
        Resolve(s.value, scope);
        return ResolveTarget(s.target, scope);
      case S::kFilterBlock:
      case S::kGeneration:
        s.slots = InnerBlock(s.body, scope);
        return Resolve(s.value, scope);
      default:
        return Resolve(s.value, scope);
    }
  }

  void ResolveTarget(Target& target, Scope& scope) {
    if (target.kind == Target::Kind::kNamespace) Resolve(target.ref, scope);
    for (Target& part : target.parts) ResolveTarget(part, scope);
  }

  void ResolveFor(Statement& s, Scope& outer) {
    Resolve(s.value, outer);
    s.otherwise_slots = InnerBlock(s.otherwise, outer);
    Scope scope(&outer, outer.function);
    scope.loop = &s;
    s.slots.begin = scope.function->frame_size;
    DeclareTarget(scope, s.target);
    DeclareBody(scope, s.body);
    s.slots.end = scope.function->frame_size;
    Resolve(s.condition, scope);
    for (Statement* statement : s.body) Resolve(*statement, scope);
  }

  void ResolveMacro(Statement& s, Scope& outer) {
    Resolve(s.value, outer);  // of a call block
    Function function;
    Scope scope(&outer, &function);
    scope.macro = &s;
    for (Parameter& parameter : s.parameters) parameter.slot = Declare(scope, parameter.name);
    for (Parameter& parameter : s.parameters) Resolve(parameter.fallback, scope);
    Inside(s.body, scope);
    s.frame_size = function.frame_size;
  }

  void ResolveWith(Statement& s, Scope& outer) {
    for (auto& [target, value] : s.assignments) Resolve(value, outer);
    Scope scope(&outer, outer.function);
    s.slots.begin = scope.function->frame_size;
    for (auto& [target, value] : s.assignments) DeclareTarget(scope, target);
    DeclareBody(scope, s.body);
    s.slots.end = scope.function->frame_size;
    for (Statement* statement : s.body) Resolve(*statement, scope);
  }

  void Resolve(Expression* e, Scope& scope) {
    if (e == nullptr) return;
    if (e->kind == Expression::Kind::kName) return Resolve(e->ref, scope);
    Resolve(e->left, scope);
    Resolve(e->right, scope);
    for (Expression* item : e->items) Resolve(item, scope);
    for (Keyword& keyword : e->keywords) Resolve(keyword.value, scope);
    Resolve(e->star, scope);
    Resolve(e->double_star, scope);
  }

  // Names that a scope provides only if somebody asks for them.
  static int Implied(Scope& scope, std::string_view name) {
    int* slot = nullptr;
    if (scope.loop != nullptr && name == "loop") slot = &scope.loop->loop_slot;
    if (scope.macro != nullptr && name == "caller") slot = &scope.macro->caller_slot;
    if (scope.macro != nullptr && name == "varargs") slot = &scope.macro->varargs_slot;
    if (scope.macro != nullptr && name == "kwargs") slot = &scope.macro->kwargs_slot;
    if (slot == nullptr) return -1;
    if (*slot < 0) *slot = scope.function->frame_size++;
    return *slot;
  }

  void Resolve(NameRef& ref, Scope& innermost) {
    int hops = 0;
    for (Scope* scope = &innermost; scope != nullptr; scope = scope->outer) {
      const auto it = scope->slots.find(ref.name);
      const int slot = it != scope->slots.end() ? it->second : Implied(*scope, ref.name);
      if (slot >= 0) ref.slots.push_back({hops, slot});
      if (scope->outer != nullptr && scope->outer->function != scope->function) ++hops;
    }
    const auto [it, is_new] = globals_.emplace(ref.name, static_cast<int>(program_.globals.size()));
    if (is_new) program_.globals.push_back(ref.name);
    ref.global = it->second;
  }

  Program& program_;
  std::unordered_map<std::string_view, int> globals_;
};

}  // namespace

void Resolve(Program& program) { Resolver(program).Run(); }

}  // namespace lockstep::text::jinja
